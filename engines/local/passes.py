"""How a full-attention forward pass attends: on the ring, or with its rows on every rank.

Knows runs, tiles and exchanges; does not know models, sampling or the chunks of hierarchical
attention (see `hierarchical`).

Shapes: H query heads, G key heads, T rows, S stored keys, D head dim. Suffix order is dim order.
"""

from collections.abc import Callable, Sequence

from torch import Tensor

from engines.local.hook import LayerCall
from engines.local.kv import ShardedKv, packed, unpacked
from engines.local.placement import Run, Shares, Tile, num_tokens, plan_tiles
from engines.local.ring import RingGroup, StepAborted
from engines.local.tiles import Accumulator, attend_tile

Stop = Callable[[], bool]
"""True once this rank has heard that nobody wants the step any more."""


class RingPass:
    """Each rank holds some rows of a chunk; keys and values travel round the ring.

    The buffer of the next step is posted before the tiles of this one, which hide it. Every rank
    must hold rows.
    """

    def __init__(self, kv: ShardedKv, new: Shares, group: RingGroup, stop: Stop) -> None:
        self._kv = kv
        self._group = group
        self._stop = stop
        self._queries = new[group.rank]
        self._keys = kv.after(new)
        self._tiles: dict[tuple[int, int | None], tuple[Tile, ...]] = {}

    def attend(self, call: LayerCall) -> tuple[Tensor, Tensor]:
        rank, size = self._group.rank, self._group.size
        kv = self._kv
        kv.store.write(call.layer, kv.num_held, call.k_GTD, call.v_GTD)
        k_GSD, v_GSD = kv.store.read(call.layer, 0, num_tokens(self._keys[rank]))
        stopped = self._stop()
        travelling = packed(k_GSD, v_GSD, stopped) if size > 1 else k_GSD
        total = Accumulator.like(call.q_HTD)
        for step in range(size):
            source = (rank - step) % size
            if step < size - 1:
                arriving = self._group.pass_on(travelling, self._numel((source - 1) % size, call))
            self._add_tiles(total, call, source, k_GSD, v_GSD)
            if step < size - 1:
                travelling = arriving.wait()
                k_GSD, v_GSD, wants_stop = unpacked(travelling, *k_GSD.shape[::2])
                stopped |= wants_stop
        if stopped:
            raise StepAborted
        return total.out_HTD, total.lse_HT

    def _numel(self, source: int, call: LayerCall) -> int:
        num_heads, _, head_dim = call.k_GTD.shape
        return 2 * num_heads * head_dim * num_tokens(self._keys[source]) + 1

    def _add_tiles(
        self, total: Accumulator, call: LayerCall, source: int, k_GSD: Tensor, v_GSD: Tensor
    ) -> None:
        plan = self._tiles.get((source, call.window))
        if plan is None:
            plan = plan_tiles(self._queries, self._keys[source], call.window)
            self._tiles[source, call.window] = plan
        add_tiles(total, call, k_GSD, v_GSD, plan)


class SequenceRows:
    """Consecutive rows that stand at the end of a sharded KV: a decoded token, or a chunk that
    is too small to share out as queries."""

    def __init__(self, kv: ShardedKv, new: Shares) -> None:
        self._kv = kv
        self._mine = new[kv.rank]
        self._keys = kv.after(new)[kv.rank]
        self._queries = Run(kv.stop, sum(num_tokens(runs) for runs in new))
        self._tiles: dict[int | None, tuple[Tile, ...]] = {}

    @property
    def num_rows(self) -> int:
        return self._queries.length

    def attend(self, call: LayerCall, total: Accumulator) -> None:
        """Store what this rank owns of the rows, and add what its own keys give to `total`."""
        at = self._kv.num_held
        for run in self._mine:
            own = call.rows(run.start - self._queries.start, run.stop - self._queries.start)
            self._kv.store.write(call.layer, at, own.k_GTD, own.v_GTD)
            at += run.length
        plan = self._tiles.get(call.window)
        if plan is None:
            plan = plan_tiles((self._queries,), self._keys, call.window)
            self._tiles[call.window] = plan
        if plan:
            k_GSD, v_GSD = self._kv.store.read(call.layer, 0, num_tokens(self._keys))
            add_tiles(total, call, k_GSD, v_GSD, plan)


class ReplicatedPass:
    """Every rank runs all rows; each attends over the keys it holds, and one exchange per layer
    merges the results of all rows of all parts."""

    def __init__(self, parts: Sequence[SequenceRows], group: RingGroup, stop: Stop) -> None:
        self._parts = parts
        self._group = group
        self._stop = stop

    def attend(self, call: LayerCall) -> tuple[Tensor, Tensor]:
        total = Accumulator.like(call.q_HTD)
        row = 0
        for part in self._parts:
            stop = row + part.num_rows
            part.attend(call.rows(row, stop), total.rows(row, stop))
            row = stop
        return self._group.merge(total, stop=self._stop())


def add_tiles(
    total: Accumulator, call: LayerCall, k_GSD: Tensor, v_GSD: Tensor, plan: Sequence[Tile]
) -> None:
    for tile in plan:
        block = attend_tile(call.q_HTD, k_GSD, v_GSD, tile, scale=call.scale, window=call.window)
        total.rows(tile.row, tile.row + tile.num_rows).add(*block)
