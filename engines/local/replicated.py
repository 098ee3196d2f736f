"""A full-attention forward pass whose rows stand on every rank: decode, and tiny chunks.

Knows whose keys a rank holds and the one exchange per layer; does not know models or sampling.

Shapes: H query heads, G key heads, T rows, S stored keys, D head dim. Suffix order is dim order.
"""

from collections.abc import Sequence

from torch import Tensor

from engines.local.hook import LayerCall
from engines.local.kv import ShardedKv
from engines.local.passes import Stop, begin_with_tiles
from engines.local.placement import Run, Shares, Tile, num_tokens, plan_tiles
from engines.local.ring import RingGroup
from engines.local.tiles import Accumulator


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
            begin_with_tiles(total, call, k_GSD, v_GSD, plan)


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
