"""A full-attention forward pass on the ring: each rank has rows, keys or queries travel.

Knows runs, tiles and the ring; does not know models, sampling or sequences.

Shapes: H query heads, G key heads, T rows, S stored keys, D head dim. Suffix order is dim order.
"""

import time
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from engines.local.hook import LayerCall
from engines.local.kv import ShardedKv
from engines.local.passes import Stop, add_tiles
from engines.local.placement import Piece, Shares, Tile, num_tokens, pieces_from, plan_tiles
from engines.local.ring import Arriving, RingGroup, StepAborted
from engines.local.tiles import Accumulator
from engines.local.travel import TravelRule


class RingPass:
    """Each rank holds some rows of a chunk and some keys; per layer either go round the ring.

    What the next turn needs is posted before the tiles of this one, which hide it. Every buffer
    ends in its first sender's wish to stop, so after N - 1 turns all ranks know all wishes.
    Every rank must hold rows.
    """

    def __init__(
        self,
        kv: ShardedKv,
        new: Shares,
        group: RingGroup,
        stop: Stop,
        rule: TravelRule = TravelRule(),  # noqa: B008 (frozen)
    ) -> None:
        self._kv = kv
        self._new = new
        self._keys = kv.after(new)
        self._group = group
        self._stop = stop
        self._rule = rule
        self._num_new = sum(num_tokens(runs) for runs in new)
        self._plans: dict[tuple[int, int, int | None], tuple[Tile, ...]] = {}
        self.turns_s = [0.0] * group.size if group.size > 1 else []
        """Seconds of each turn, summed over layers, waiting included; on a GPU, of the host."""

    def attend(self, call: LayerCall) -> tuple[Tensor, Tensor]:
        kv, rank = self._kv, self._group.rank
        kv.store.write(call.layer, kv.num_held, call.k_GTD, call.v_GTD)
        k_GSD, v_GSD = kv.store.read(call.layer, 0, num_tokens(self._keys[rank]))
        if self._group.size > 1 and not self._keys_travel(call):
            total = self._pass_queries(call, k_GSD, v_GSD)
        else:
            total = self._pass_keys(call, k_GSD, v_GSD)
        return total.out_HTD, total.lse_HT

    def _keys_travel(self, call: LayerCall) -> bool:
        num_old = self._kv.stop - self._first_seen(call.window)
        return self._rule.keys_travel(
            num_new=self._num_new,
            num_seen=num_old + self._num_new,
            num_heads=call.q_HTD.shape[0],
            num_key_heads=call.k_GTD.shape[0],
        )

    def _first_seen(self, window: int | None) -> int:
        """The first position that any row of the step sees."""
        return 0 if window is None else max(0, self._kv.stop - window + 1)

    def _plan(self, rows_of: int, keys_of: int, window: int | None) -> tuple[Tile, ...]:
        """Tiles of one rank's rows on the keys of another as they come: what cannot be seen by
        anybody stays at home."""
        plan = self._plans.get((rows_of, keys_of, window))
        if plan is None:
            keys = self._keys[keys_of]
            if keys_of != self._group.rank:
                keys = tuple(piece.run for piece in self._travelling(keys_of, window))
            plan = plan_tiles(self._new[rows_of], keys, window)
            self._plans[rows_of, keys_of, window] = plan
        return plan

    def _travelling(self, source: int, window: int | None) -> tuple[Piece, ...]:
        return pieces_from(self._keys[source], self._first_seen(window))

    def _timed(self, turn: int, began_s: float) -> float:
        """Count the time since `began_s` for this turn; now."""
        now_s = time.perf_counter()
        if self.turns_s:
            self.turns_s[turn] += now_s - began_s
        return now_s

    # Keys and values travel.

    def _pass_keys(self, call: LayerCall, k_GSD: Tensor, v_GSD: Tensor) -> Accumulator:
        rank, size = self._group.rank, self._group.size
        stopped = self._stop()
        buffer = k_GSD
        if size > 1:
            buffer = _packed_keys(k_GSD, v_GSD, self._travelling(rank, call.window), stopped)
        total, began_s = Accumulator.like(call.q_HTD), time.perf_counter()
        for turn in range(size):
            source = (rank - turn) % size
            arriving = None
            if turn < size - 1:
                arriving = self._group.pass_on(buffer, self._keys_numel(source - 1, call))
            add_tiles(total, call, k_GSD, v_GSD, self._plan(rank, source, call.window))
            if arriving is not None:
                buffer, flag = _opened(arriving)
                k_GSD, v_GSD = buffer[:-1].view(2, k_GSD.shape[0], -1, k_GSD.shape[2])
                stopped |= flag
            began_s = self._timed(turn, began_s)
        if stopped:
            raise StepAborted
        return total

    def _keys_numel(self, source: int, call: LayerCall) -> int:
        num_heads, _, head_dim = call.k_GTD.shape
        pieces = self._travelling(source % self._group.size, call.window)
        return 2 * num_heads * head_dim * sum(piece.run.length for piece in pieces) + 1

    # Queries travel, and their results go home.

    def _pass_queries(self, call: LayerCall, k_GSD: Tensor, v_GSD: Tensor) -> Accumulator:
        rank, size = self._group.rank, self._group.size
        stopped = self._stop()
        buffer = torch.cat([call.q_HTD.reshape(-1), call.q_HTD.new_tensor([float(stopped)])])
        total, returning = Accumulator.like(call.q_HTD), list[Arriving]()
        began_s = time.perf_counter()
        for turn in range(size):
            source = (rank - turn) % size
            arriving = None
            if turn < size - 1:
                arriving = self._group.pass_on(buffer, self._queries_numel(source - 1, call))
            plan = self._plan(source, rank, call.window)
            if turn == 0:
                add_tiles(total, call, k_GSD, v_GSD, plan)
            else:
                q_HTD = buffer[:-1].view(call.q_HTD.shape[0], -1, call.q_HTD.shape[2])
                partial, results = _empty_results(q_HTD)
                add_tiles(partial, replace(call, q_HTD=q_HTD), k_GSD, v_GSD, plan)
                home = self._group.pass_on(results, _results_numel(call.q_HTD), distance=-turn)
                returning.append(home)
            if arriving is not None:
                buffer, flag = _opened(arriving)
                stopped |= flag
            began_s = self._timed(turn, began_s)
        for home in returning:
            part = _results_of(home.wait(), call.q_HTD)
            total.add(part.out_HTD, part.lse_HT)
        self._timed(size - 1, began_s)
        if stopped:
            raise StepAborted
        return total

    def _queries_numel(self, source: int, call: LayerCall) -> int:
        num_heads, _, head_dim = call.q_HTD.shape
        return num_heads * head_dim * num_tokens(self._new[source % self._group.size]) + 1


def _packed_keys(k_GSD: Tensor, v_GSD: Tensor, pieces: Sequence[Piece], flag: bool) -> Tensor:
    """The pieces of keys, then of values, and the flag in one contiguous buffer.

    A copy, but of a few times the new tokens at most: beyond that queries travel.
    """
    num_heads, _, head_dim = k_GSD.shape
    num_keys = sum(piece.run.length for piece in pieces)
    buffer = k_GSD.new_empty(2 * num_heads * num_keys * head_dim + 1)
    k_out_GSD, v_out_GSD = buffer[:-1].view(2, num_heads, num_keys, head_dim)
    at = 0
    for offset, run in pieces:
        k_out_GSD[:, at : at + run.length] = k_GSD[:, offset : offset + run.length]
        v_out_GSD[:, at : at + run.length] = v_GSD[:, offset : offset + run.length]
        at += run.length
    buffer[-1] = float(flag)
    return buffer


def _opened(arriving: Arriving) -> tuple[Tensor, bool]:
    buffer = arriving.wait()
    return buffer, bool(buffer[-1] != 0)


def _results_numel(q_HTD: Tensor) -> int:
    num_heads, num_rows, head_dim = q_HTD.shape
    return num_heads * num_rows * (head_dim + 1)


def _results_of(buffer: Tensor, q_HTD: Tensor) -> Accumulator:
    """A buffer of `_results_numel`, seen as what the rows of `q_HTD` got."""
    return Accumulator(
        buffer[: q_HTD.numel()].view(q_HTD.shape), buffer[q_HTD.numel() :].view(q_HTD.shape[:2])
    )


def _empty_results(q_HTD: Tensor) -> tuple[Accumulator, Tensor]:
    """A result without keys yet, and the one float32 buffer that holds it."""
    buffer = torch.zeros(_results_numel(q_HTD), dtype=torch.float32, device=q_HTD.device)
    partial = _results_of(buffer, q_HTD)
    partial.lse_HT.fill_(float("-inf"))
    return partial, buffer
