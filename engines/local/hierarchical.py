"""Hierarchical attention on one rank: encode chunks alone and weigh them by the question.

Knows the chunk plan and where chunks are stored; does not know models, nor the answer: the
heaviest chunks are read again, together, by full attention (see `executor`). On SmolLM2-135M the
right chunk is nearly always found, but an answer from chunks that never saw each other is wrong.

Positions. Chunks share one place, so that no prompt leaves the model's window and no chunk wins
by being near:

    | anchor |  (gap before a short chunk)  chunk | question |
    0        a                                    a + longest

Shapes: L layers, C own chunks, H query heads, T rows, S keys, D head dim. Suffix order is dim
order.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engines.chunks import ChunkPlan
from engines.local.hook import LayerCall
from engines.local.kv import KvStore
from engines.local.mesh import HeadGroup
from engines.local.passes import Stop, add_tiles
from engines.local.placement import Run, plan_tiles
from engines.local.ring import RingGroup, StepAborted
from engines.local.tiles import Accumulator


class Context:
    """Anchor and this rank's chunks of one prompt, with their KV.

    Chunk j belongs to rank j mod N. The anchor is encoded by every rank that has a chunk, and
    counted by rank 0 only, which has one if any rank has.
    """

    def __init__(self, plan: ChunkPlan, *, rank: int, num_ranks: int) -> None:
        self.plan = plan
        self.anchor = Run(0, plan.anchor_stop)
        self.counts_anchor = rank == 0
        self.own = tuple(range(rank, len(plan.chunks), num_ranks))
        self.store = KvStore(plan.anchor_stop + sum(self._length(j) for j in self.own))
        self.asked_from = plan.anchor_stop + max(
            map(self._length, range(len(plan.chunks))), default=0
        )
        self._offsets: dict[int, int] = {}
        self._anchor_stored = plan.anchor_stop == 0
        self._num_held = plan.anchor_stop

    def _length(self, chunk: int) -> int:
        start, stop = self.plan.chunks[chunk]
        return stop - start

    @property
    def needs_anchor(self) -> bool:
        return not self._anchor_stored

    @property
    def is_complete(self) -> bool:
        return len(self._offsets) == len(self.own)

    def place(self, chunk: int) -> Run:
        """The positions of a chunk: right before the question."""
        return Run(self.asked_from - self._length(chunk), self._length(chunk))

    def anchor_pass(self, stop: Stop) -> "EncodePass":
        return EncodePass(self, self.anchor, 0, stop)

    def chunk_pass(self, chunk: int, stop: Stop) -> "EncodePass":
        assert not self.needs_anchor, "a chunk attends the anchor"
        return EncodePass(self, self.place(chunk), self._num_held, stop)

    def commit_anchor(self) -> None:
        self._anchor_stored = True

    def commit_chunk(self, chunk: int) -> None:
        self._offsets[chunk] = self._num_held
        self._num_held += self._length(chunk)

    def add_anchor(self, total: Accumulator, call: LayerCall, queries: Run) -> None:
        """Add what the anchor gives to rows at the positions `queries`."""
        self._add_stored(total, call, queries, self.anchor, 0)

    def add_chunk(self, total: Accumulator, call: LayerCall, queries: Run, chunk: int) -> None:
        """Add what one of this rank's chunks gives to rows at the positions `queries`."""
        self._add_stored(total, call, queries, self.place(chunk), self._offsets[chunk])

    def _add_stored(
        self, total: Accumulator, call: LayerCall, queries: Run, keys: Run, at: int
    ) -> None:
        plan = plan_tiles((queries,), (keys,), call.window)
        if plan:
            k_GSD, v_GSD = self.store.read(call.layer, at, at + keys.length)
            add_tiles(total, call, k_GSD, v_GSD, plan)


class EncodePass:
    """Level 1: one block of tokens attends the anchor and itself. No other rank is involved."""

    def __init__(self, context: Context, block: Run, at: int, stop: Stop) -> None:
        self._context = context
        self._block = block
        self._at = at
        self._stop = stop

    def attend(self, call: LayerCall) -> tuple[Tensor, Tensor]:
        if self._stop():
            raise StepAborted
        total = Accumulator.like(call.q_HTD)
        block = (self._block,)
        add_tiles(total, call, call.k_GTD, call.v_GTD, plan_tiles(block, block, call.window))
        if self._at > 0:
            self._context.add_anchor(total, call, self._block)
        self._context.store.write(call.layer, self._at, call.k_GTD, call.v_GTD)
        return total.out_HTD, total.lse_HT


class ScorePass:
    """Level 2: the question attends to everything stored, and each chunk's share of
    its attention falls out of the chunk's log-sum-exp.

    The question's own KV is not kept. Every rank runs all rows.
    """

    def __init__(self, context: Context, question: Run, group: RingGroup, stop: Stop) -> None:
        self._context = context
        self._question = question
        self._group = group
        self._stop = stop
        self._global = ChunkMass()
        self._windowed = ChunkMass()

    def attend(self, call: LayerCall) -> tuple[Tensor, Tensor]:
        total = Accumulator.like(call.q_HTD)
        question = (self._question,)
        if self._context.counts_anchor:
            plan = plan_tiles(question, question, call.window)
            add_tiles(total, call, call.k_GTD, call.v_GTD, plan)
            self._context.add_anchor(total, call, self._question)
        chunk_lses: list[Tensor] = []
        for chunk in self._context.own:
            block = Accumulator.like(call.q_HTD)
            self._context.add_chunk(block, call, self._question, chunk)
            total.add(block.out_HTD, block.lse_HT)
            chunk_lses.append(block.lse_HT)
        out_HTD, lse_HT = self._group.merge(total, stop=self._stop())
        if chunk_lses:
            mass = self._global if call.window is None else self._windowed
            mass.observe(torch.exp(torch.stack(chunk_lses) - lse_HT))
        return out_HTD, lse_HT

    def weigh(self) -> "Weights":
        """Weights of all chunks of the prompt, equal on all ranks.

        Layers with a sliding window see only what is near, so they have no say unless the model
        has no other layers.
        """
        num_chunks = len(self._context.plan.chunks)
        seen = self._global if self._global.num_layers else self._windowed
        mine = torch.zeros(2, num_chunks)
        if seen.num_layers:
            own = torch.tensor(self._context.own)
            mine[0, own] = seen.score(self._group.heads)
            mine[1, own] = seen.mean(self._group.heads)
        both = self._group.gather(mine.reshape(-1)).sum(0).view(2, num_chunks)
        return Weights(score=tuple(both[0].tolist()), mass=tuple(both[1].tolist()))


@dataclass(frozen=True, slots=True)
class Weights:
    """Per chunk: `mass`, its share in [0, 1] of the question's attention, averaged over layers,
    heads and rows; `score`, what the choice goes by."""

    score: tuple[float, ...]
    mass: tuple[float, ...]

    def recall(self, chosen: Sequence[int]) -> float:
        """The share that the chosen chunks, the anchor and the question itself cover."""
        missed = sum(self.mass) - sum(self.mass[chunk] for chunk in chosen)
        return min(1.0, max(0.0, 1.0 - missed))


class ChunkMass:
    """Attention shares of this rank's chunks, gathered layer by layer.

    The score takes, per layer, the head and row that look at the chunk hardest: few of them look
    a fact up, and an average over all drowns it. On SmolLM2-135M with 12 chunks and 20 planted
    numbers the right chunk came first 18 times (by the average: 5) and always among three.
    """

    def __init__(self) -> None:
        self._mean_LC: list[Tensor] = []
        self._peak_LC: list[Tensor] = []

    @property
    def num_layers(self) -> int:
        return len(self._mean_LC)

    def observe(self, mass_CHT: Tensor) -> None:
        self._mean_LC.append(mass_CHT.mean((1, 2)).cpu())
        self._peak_LC.append(mass_CHT.amax((1, 2)).cpu())

    def mean(self, heads: HeadGroup | None) -> Tensor:
        """[C], over all heads, those of the other `heads` ranks included."""
        mean_C = torch.stack(self._mean_LC).mean(0)
        return mean_C if heads is None else heads.mean(mean_C)

    def score(self, heads: HeadGroup | None) -> Tensor:
        """[C], over all heads, those of the other `heads` ranks included."""
        peak_LC = torch.stack(self._peak_LC)
        return (peak_LC if heads is None else heads.highest(peak_LC)).sum(0)
