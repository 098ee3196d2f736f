"""A full-attention forward pass whose rows stand on every rank: decode, and tiny chunks.

Knows whose keys a rank holds and the one exchange per layer; does not know models or sampling.

Shapes: H query heads, G key heads, T rows, S stored keys, D head dim. Suffix order is dim order.
"""

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from engines.local.hook import LayerCall
from engines.local.kernels.attend import Spans
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
        self._num_held = kv.num_held
        self._num_keys = self._num_held + num_tokens(self._mine)
        self._new = new
        self._queries = Run(kv.stop, sum(num_tokens(runs) for runs in new))
        self._tiles: dict[int | None, tuple[Tile, ...]] = {}

    @property
    def num_rows(self) -> int:
        return self._queries.length

    def store(self, layer: int, k_GTD: Tensor, v_GTD: Tensor) -> None:
        """Keep what this rank owns of the rows' keys and values."""
        at = self._num_held
        for run in self._mine:
            start, stop = run.start - self._queries.start, run.stop - self._queries.start
            self._kv.store.write(layer, at, k_GTD[:, start:stop], v_GTD[:, start:stop])
            at += run.length

    def read(self, layer: int) -> tuple[Tensor, Tensor]:
        """(k_GSD, v_GSD) of all that this rank holds, the rows included; it must hold a token."""
        return self._kv.store.read(layer, 0, self._num_keys)

    def spans(self, window: int | None) -> Spans:
        """Where in `read` the keys lie that a single row sees."""
        assert self.num_rows == 1
        if window is None:
            return np.array([[0, self._num_keys]][: self._num_keys], np.int64).reshape(-1, 2)
        tiles = self._plan(window)
        return np.array([[tile.key, tile.num_keys] for tile in tiles], np.int64).reshape(-1, 2)

    def attend(self, call: LayerCall, total: Accumulator) -> None:
        """Store what this rank owns of the rows, and add what its own keys give to `total`."""
        self.store(call.layer, call.k_GTD, call.v_GTD)
        plan = self._plan(call.window)
        if plan:
            k_GSD, v_GSD = self.read(call.layer)
            begin_with_tiles(total, call, k_GSD, v_GSD, plan)

    def _plan(self, window: int | None) -> tuple[Tile, ...]:
        plan = self._tiles.get(window)
        if plan is None:
            keys = self._kv.after(self._new)[self._kv.rank]
            plan = plan_tiles((self._queries,), keys, window)
            self._tiles[window] = plan
        return plan


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
