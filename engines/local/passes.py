"""What all full-attention passes share: when to stop, and adding tiles up.

Shapes: G key heads, S stored keys, D head dim. Suffix order is dim order.
"""

from collections.abc import Callable, Sequence

from torch import Tensor

from engines.local.hook import LayerCall
from engines.local.placement import Tile
from engines.local.tiles import Accumulator, attend_tile

Stop = Callable[[], bool]
"""True once this rank has heard that nobody wants the step any more."""


def add_tiles(
    total: Accumulator, call: LayerCall, k_GSD: Tensor, v_GSD: Tensor, plan: Sequence[Tile]
) -> None:
    for tile in plan:
        block = attend_tile(call.q_HTD, k_GSD, v_GSD, tile, scale=call.scale, window=call.window)
        total.rows(tile.row, tile.row + tile.num_rows).add(*block)


def begin_with_tiles(
    total: Accumulator, call: LayerCall, k_GSD: Tensor, v_GSD: Tensor, plan: Sequence[Tile]
) -> None:
    """`add_tiles` to rows that have seen nothing yet; one tile for all of them, as a decoded
    token has, is just stored."""
    if len(plan) == 1 and plan[0].num_rows == call.q_HTD.shape[1]:
        total.begin(
            *attend_tile(call.q_HTD, k_GSD, v_GSD, plan[0], scale=call.scale, window=call.window)
        )
    else:
        add_tiles(total, call, k_GSD, v_GSD, plan)
