"""The rank-side engine: carries out the supervisor's steps on one model and its ring.

Knows messages, sequences and in which order things happen; how attention works is in `passes`
and `hierarchical`. Every rank runs the same steps in the same order and reports the same tokens.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engines.chunks import ChunkPlan, choose_chunks, num_within
from engines.config import EngineConfig
from engines.gang.messages import (
    Ask,
    Decode,
    Encode,
    Fork,
    Logprob,
    Open,
    Prefill,
    Sampled,
    Span,
    Step,
    StepDone,
)
from engines.gang.runner import StepTooLarge
from engines.local.hierarchical import Context, ScorePass, Weights
from engines.local.hook import AttentionPass
from engines.local.loading import Decoder, load_model
from engines.local.passes import Stop
from engines.local.placement import Run, deal, paged, positions_of, zigzag
from engines.local.replicated import ReplicatedPass
from engines.local.ring import RingGroup, StepAborted
from engines.local.ring_pass import RingPass
from engines.local.sampling import Drawn, agree, draw
from engines.local.sequences import OpenSequence, open_sequence, read_by_full_attention


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    sampled: tuple[Sampled, ...] = ()
    spans: tuple[Span, ...] = ()
    recall: float | None = None


class Executor:
    """One rank. Not thread-safe, except that `cancelled` is asked while a step runs."""

    def __init__(self, config: EngineConfig, group: RingGroup, decoder: Decoder) -> None:
        self.sequences: dict[int, OpenSequence] = {}
        self._config = config
        self._group = group
        self._decoder = decoder

    @classmethod
    def load(cls, config: EngineConfig, group: RingGroup) -> "Executor":
        """Load the model and settle this process's threads. Raises EngineRefused."""
        torch.set_num_threads(config.threads_per_rank)
        decoder = load_model(config.model_dir, config.dtype, group.heads)
        decoder.quicken(config.threads_per_rank)
        return cls(config, group, decoder)

    @property
    def vocab_size(self) -> int:
        return self._decoder.vocab_size

    @property
    def window_tokens(self) -> int:
        """The length that the model was trained for."""
        return self._decoder.window_tokens

    @property
    def num_layers(self) -> int:
        return self._decoder.num_layers

    def open(self, message: Open) -> None:
        """Make room for a sequence. Raises ValueError for an id that is open already."""
        if message.sequence_id in self.sequences:
            raise ValueError(f"sequence {message.sequence_id} is open already")
        with torch.inference_mode():
            sequence = open_sequence(message, self._group, self._config)
        self.sequences[message.sequence_id] = sequence

    def close(self, sequence_id: int) -> None:
        """Free the sequence's KV. Unknown ids are ignored."""
        self.sequences.pop(sequence_id, None)

    def run(self, step: Step, cancelled: Callable[[int], bool]) -> StepDone:
        """Carry out one step. `cancelled(sequence_id)` is asked at every layer.

        Once every sequence of the step is cancelled on one rank, all ranks leave it after the
        same layer and report `aborted` (Encode exchanges nothing, so there each rank leaves by
        itself). Raises StepTooLarge when memory for it cannot be had, ValueError for a step that
        does not fit the sequence's state, and whatever the exchange raises when a rank is lost.
        """
        started_s = time.perf_counter()
        ids = step.sequence_ids if isinstance(step, Decode) else [step.sequence_id]
        aborted = False
        outcome = Outcome()
        with torch.inference_mode():
            try:
                stop = self._group.agreed(lambda: all(cancelled(i) for i in ids))
                outcome = self._run(step, stop)
            except StepAborted:
                aborted = True
            except (MemoryError, RuntimeError) as error:
                # torch's CPU allocator raises a RuntimeError that only its words tell apart.
                words = "can't allocate memory"
                if isinstance(error, MemoryError | torch.OutOfMemoryError) or words in str(error):
                    raise StepTooLarge(f"out of memory: {error}") from error
                raise
        return StepDone(
            step_id=step.step_id,
            rank=self._group.world_rank,
            seconds=time.perf_counter() - started_s,
            sampled=list(outcome.sampled),
            aborted=aborted,
            spans=list(outcome.spans),
            recall=outcome.recall,
        )

    def _run(self, step: Step, stop: Stop) -> Outcome:
        match step:
            case Prefill():
                return self._prefill(step, self._sequence(step.sequence_id), stop)
            case Encode():
                return self._encode(step, self._context(step.sequence_id), stop)
            case Ask():
                return self._ask(self._sequence(step.sequence_id), stop)
            case Fork():
                return self._fork(step, self._sequence(step.sequence_id))
            case Decode():
                return self._decode([self._sequence(i) for i in step.sequence_ids], stop)

    def _sequence(self, sequence_id: int) -> OpenSequence:
        sequence = self.sequences.get(sequence_id)
        if sequence is None:
            raise ValueError(f"sequence {sequence_id} is not open")
        return sequence

    def _context(self, sequence_id: int) -> tuple[OpenSequence, Context]:
        sequence = self._sequence(sequence_id)
        if sequence.context is None:
            raise ValueError(f"sequence {sequence_id} is not hierarchical")
        return sequence, sequence.context

    # Full attention.

    def _prefill(self, step: Prefill, sequence: OpenSequence, stop: Stop) -> Outcome:
        kv = sequence.kv
        if step.start != kv.stop or not step.start < step.stop <= len(sequence.ids_T):
            raise ValueError(
                f"cannot prefill [{step.start}, {step.stop}): {kv.stop} of "
                f"{len(sequence.ids_T)} tokens are there"
            )
        size = self._group.size
        attending: AttentionPass
        if step.stop - step.start < 2 * size:
            new = deal(step.start, step.stop, size)
            rows = list(range(step.start, step.stop))
            part = sequence.rows(new)
            attending = ReplicatedPass([part], self._group, stop)
        else:
            new = zigzag(step.start, step.stop, size)
            rows = positions_of(new[self._group.rank])
            attending = RingPass(kv, new, self._group, stop)
        is_last = step.stop == len(sequence.ids_T)
        rows_T = torch.tensor(rows)
        # Rank 0 holds the last row, on the ring and off it.
        logits = self._forward(
            sequence.ids_T[rows_T], rows_T, attending, [len(rows) - 1] if is_last else []
        )
        kv.commit(new)
        if not is_last:
            return Outcome()
        sequence.first_logits = logits
        return Outcome(sampled=self._sample([sequence], logits))

    def _fork(self, step: Fork, sequence: OpenSequence) -> Outcome:
        if sequence.first_logits is None:
            raise ValueError(f"sequence {sequence.sequence_id} has not just read its prompt")
        branches = [sequence.branch(new.sequence_id, new.seed) for new in step.branches]
        for branch in branches:
            if branch.sequence_id in self.sequences:
                raise ValueError(f"sequence {branch.sequence_id} is open already")
            self.sequences[branch.sequence_id] = branch
        logits = sequence.first_logits.repeat(len(branches), 1)
        return Outcome(sampled=self._sample(branches, logits))

    def _decode(self, sequences: Sequence[OpenSequence], stop: Stop) -> Outcome:
        new = [paged(s.kv.stop, self._group.size) for s in sequences]
        parts = [s.rows(n) for s, n in zip(sequences, new, strict=True)]
        logits = self._forward(
            torch.tensor([s.generated[-1] for s in sequences]),
            torch.tensor([s.kv.stop for s in sequences]),
            ReplicatedPass(parts, self._group, stop),
            range(len(sequences)),
        )
        for sequence, share in zip(sequences, new, strict=True):
            sequence.kv.commit(share)
            sequence.first_logits = None
        return Outcome(sampled=self._sample(sequences, logits))

    # Hierarchical attention.

    def _encode(self, step: Encode, opened: tuple[OpenSequence, Context], stop: Stop) -> Outcome:
        sequence, context = opened
        for chunk in range(step.first, step.last):
            if chunk in context.own:
                self._encode_anchor(sequence, context, stop)
                start, end = context.plan.chunks[chunk]
                self._encode_block(
                    sequence.text_T[start:end],
                    context.place(chunk),
                    context.chunk_pass(chunk, stop),
                )
                context.commit_chunk(chunk)
        return Outcome()

    def _encode_anchor(self, sequence: OpenSequence, context: Context, stop: Stop) -> None:
        if context.needs_anchor:
            ids_T = sequence.text_T[: context.anchor.length]
            self._encode_block(ids_T, context.anchor, context.anchor_pass(stop))
            context.commit_anchor()

    def _encode_block(self, ids_T: Tensor, block: Run, attending: AttentionPass) -> None:
        self._forward(ids_T, torch.arange(block.start, block.stop), attending, [])

    def _ask(self, sequence: OpenSequence, stop: Stop) -> Outcome:
        _, context = self._context(sequence.sequence_id)
        if not context.is_complete:
            raise ValueError(f"sequence {sequence.sequence_id} has chunks that were not encoded")
        weights = self._weigh(sequence, context, stop)
        plan, top_k = context.plan, self._config.hierarchical.top_k
        chosen = choose_chunks(weights.score, plan, top_k, self._budget(sequence, plan))
        read_by_full_attention(
            sequence,
            plan.shortlist(plan.chunks[chunk] for chunk in chosen),
            self._group,
            self._config.prefill_chunk_tokens,
        )
        return Outcome(
            spans=tuple(_spans(chosen, weights, plan)),
            recall=weights.recall(chosen),
        )

    def _weigh(self, sequence: OpenSequence, context: Context, stop: Stop) -> Weights:
        if not context.plan.chunks:
            return Weights(score=(), mass=())
        ids_T = sequence.text_T[context.plan.question_start : sequence.num_prompt]
        question = Run(context.asked_from, len(ids_T))
        scoring = ScorePass(context, question, self._group, stop)
        self._forward(ids_T, torch.arange(question.start, question.stop), scoring, [])
        return scoring.weigh()

    def _budget(self, sequence: OpenSequence, plan: ChunkPlan) -> int:
        """Tokens of chosen chunks that fit the window with anchor, question and answer."""
        others = num_within(plan.shortlist(())) + sequence.max_new_tokens
        return self._decoder.window_tokens - others

    # Both.

    def _forward(
        self, ids_T: Tensor, positions_T: Tensor, attending: AttentionPass, keep: Sequence[int]
    ) -> Tensor:
        """Logits of the rows `keep` on rank 0, which samples; no rows on the others."""
        return self._decoder.forward(
            ids_T, positions_T, attending, keep if self._group.rank == 0 else []
        )

    def _sample(self, sequences: Sequence[OpenSequence], logits: Tensor) -> tuple[Sampled, ...]:
        drawn = [
            draw(row_V, s.spec, s.generated, s.next_position)
            for s, row_V in zip(sequences, logits, strict=False)
        ]
        agreed = agree(drawn, [s.spec for s in sequences], self._group)
        for sequence, one in zip(sequences, agreed, strict=True):
            sequence.generated.append(one.token_id)
        return tuple(_report(s, one) for s, one in zip(sequences, agreed, strict=True))


def _report(sequence: OpenSequence, one: Drawn) -> Sampled:
    return Sampled(
        sequence_id=sequence.sequence_id,
        token_id=one.token_id,
        logprob=one.logprob,
        top=[Logprob(*pair) for pair in one.top],
    )


def _spans(chosen: Sequence[int], weights: Weights, plan: ChunkPlan) -> list[Span]:
    heaviest_first = sorted(chosen, key=lambda chunk: (-weights.mass[chunk], chunk))
    return [Span(*plan.chunks[chunk], weights.mass[chunk]) for chunk in heaviest_first]
