"""The rank-side engine: carries out the supervisor's steps on one model and its ring.

Knows messages, sequences and in which order things happen; how attention works is in `passes`
and `hierarchical`. Every rank runs the same steps in the same order and reports the same tokens.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engines.chunks import num_within
from engines.config import EngineConfig
from engines.gang.messages import (
    NO_TOKEN,
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
from engines.grammar import Grammars
from engines.local.few_rows import MAX_ROWS
from engines.local.grammar import allowed_V
from engines.local.hierarchical.context import Context
from engines.local.hierarchical.reader import HierarchicalReader
from engines.local.hook import AttentionPass
from engines.local.loading import Decoder, load_model
from engines.local.passes import Stop
from engines.local.placement import deal, paged, positions_of, zigzag
from engines.local.replicated import ReplicatedPass, SequenceRows
from engines.local.ring import RingGroup, StepAborted
from engines.local.ring_pass import RingPass
from engines.local.sampling import Drawn, agree, draw
from engines.local.segments.places import open_store
from engines.local.sequences import OpenSequence, open_sequence, read_by_full_attention
from engines.models.folder import read_folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    sampled: tuple[Sampled, ...] = ()
    spans: tuple[Span, ...] = ()
    recall: float | None = None
    cached_tokens: int = 0
    turns_s: tuple[float, ...] = ()


class Executor:
    """One rank. Not thread-safe, except that `cancelled` is asked while a step runs."""

    def __init__(self, config: EngineConfig, group: RingGroup, decoder: Decoder) -> None:
        self.sequences: dict[int, OpenSequence] = {}
        self._config = config
        self._group = group
        self._decoder = decoder
        self._reader = HierarchicalReader(
            config, decoder, group, open_store(config.segments, group.world_rank, config.ranks)
        )
        self._grammars: Grammars | None = None

    @classmethod
    def load(cls, config: EngineConfig, group: RingGroup) -> "Executor":
        """Load the model and settle this process's threads. Raises EngineRefused."""
        torch.set_num_threads(config.threads_per_rank)
        decoder = load_model(config.model_dir, config.dtype, group.heads, group.device)
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
        self._follow(sequence)
        self.sequences[message.sequence_id] = sequence

    def close(self, sequence_id: int) -> None:
        """Free the sequence's KV. Unknown ids are ignored."""
        sequence = self.sequences.pop(sequence_id, None)
        if sequence is not None and sequence.context is not None and not sequence.cache_key:
            self._reader.forget(sequence.context)

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
            cached_tokens=outcome.cached_tokens,
            turns_s=list(outcome.turns_s),
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

    def _follow(self, sequence: OpenSequence) -> None:
        """Let the answer obey its grammar: on rank 0, which samples for all."""
        if sequence.grammar is None or self._group.rank != 0:
            return
        if self._grammars is None:
            tokenizer = read_folder(self._config.model_dir).tokenizer
            self._grammars = Grammars(tokenizer, self.vocab_size)
        sequence.follower = self._grammars.follower(sequence.grammar)

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
        if step.start >= sequence.num_asked:
            return self._replay(step, sequence, stop)
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
        turns_s = tuple(attending.turns_s) if isinstance(attending, RingPass) else ()
        if not is_last:
            return Outcome(turns_s=turns_s)
        sequence.first_logits = logits
        return Outcome(sampled=self._sample([sequence], logits), turns_s=turns_s)

    def _replay(self, step: Prefill, sequence: OpenSequence, stop: Stop) -> Outcome:
        """Read what has been said already, in the rows in which it was decoded: so not a rounding
        is different, and the answer goes on as it would have."""
        logits = torch.empty(0)
        for first in range(step.start, step.stop, MAX_ROWS):
            positions_T = torch.arange(first, min(first + MAX_ROWS, step.stop))
            kv, parts = sequence.kv, list[SequenceRows]()
            for position in positions_T.tolist():
                new = paged(position, self._group.size)
                parts.append(SequenceRows(kv, new))
                kv = kv.ahead(new)
            logits = self._decoder.decode(
                sequence.ids_T[positions_T], positions_T, parts, self._group, stop
            )
            sequence.kv = kv
        if step.stop < len(sequence.ids_T):
            return Outcome()
        sequence.first_logits = logits[-1:]
        return Outcome(sampled=self._sample([sequence], logits[-1:]))

    def _fork(self, step: Fork, sequence: OpenSequence) -> Outcome:
        if sequence.first_logits is None:
            raise ValueError(f"sequence {sequence.sequence_id} has not just read its prompt")
        branches = [sequence.branch(new.sequence_id, new.seed) for new in step.branches]
        for branch in branches:
            if branch.sequence_id in self.sequences:
                raise ValueError(f"sequence {branch.sequence_id} is open already")
            self._follow(branch)
            self.sequences[branch.sequence_id] = branch
        logits = sequence.first_logits.repeat(len(branches), 1)
        return Outcome(sampled=self._sample(branches, logits))

    def _decode(self, sequences: Sequence[OpenSequence], stop: Stop) -> Outcome:
        new = [paged(s.kv.stop, self._group.size) for s in sequences]
        parts = [s.rows(n) for s, n in zip(sequences, new, strict=True)]
        logits = self._decoder.decode(
            torch.tensor([s.generated[-1] for s in sequences]),
            torch.tensor([s.kv.stop for s in sequences]),
            parts,
            self._group,
            stop,
        )
        for sequence, share in zip(sequences, new, strict=True):
            sequence.kv.commit(share)
            sequence.first_logits = None
        return Outcome(sampled=self._sample(sequences, logits))

    # Hierarchical attention.

    def _encode(self, step: Encode, opened: tuple[OpenSequence, Context], stop: Stop) -> Outcome:
        sequence, context = opened
        before = context.num_reused
        for chunk in range(step.first, step.last):
            if chunk in context.own:
                self._reader.encode(context, sequence.text_T, sequence.owner, chunk, stop)
        return Outcome(cached_tokens=context.num_reused - before)

    def _ask(self, sequence: OpenSequence, stop: Stop) -> Outcome:
        _, context = self._context(sequence.sequence_id)
        if not context.is_complete:
            raise ValueError(f"sequence {sequence.sequence_id} has chunks that were not encoded")
        if self._group.gather(torch.tensor([float(stop())])).any():
            raise StepAborted
        plan = context.plan
        others = num_within(plan.shortlist(())) + sequence.max_new_tokens
        room = self._decoder.window_tokens - others
        spans, recall = self._reader.ask(context, sequence.text_T, room)
        read_by_full_attention(
            sequence,
            plan.shortlist((span.start, span.stop) for span in spans),
            self._group,
            self._config.prefill_chunk_tokens,
        )
        return Outcome(spans=tuple(spans), recall=recall)

    # Both.

    def _forward(
        self, ids_T: Tensor, positions_T: Tensor, attending: AttentionPass, keep: Sequence[int]
    ) -> Tensor:
        """Logits of the rows `keep` on rank 0, which samples; no rows on the others."""
        return self._decoder.forward(
            ids_T, positions_T, attending, keep if self._group.rank == 0 else []
        )

    def _sample(self, sequences: Sequence[OpenSequence], logits: Tensor) -> tuple[Sampled, ...]:
        drawn = [_draw(s, row_V) for s, row_V in zip(sequences, logits, strict=False)]
        agreed = agree(drawn, [s.spec for s in sequences], self._group)
        for sequence, one in zip(sequences, agreed, strict=True):
            sequence.generated.append(one.token_id)
        return tuple(_report(s, one) for s, one in zip(sequences, agreed, strict=True))


def _draw(sequence: OpenSequence, row_V: Tensor) -> Drawn:
    spec, answer, position = sequence.spec, sequence.generated, sequence.next_position
    if sequence.follower is None:
        return draw(row_V, spec, answer, position)
    mask_V = allowed_V(sequence.follower, answer, row_V.numel())
    return (
        Drawn(token_id=NO_TOKEN) if mask_V is None else draw(row_V, spec, answer, position, mask_V)
    )


def _report(sequence: OpenSequence, one: Drawn) -> Sampled:
    return Sampled(
        sequence_id=sequence.sequence_id,
        token_id=one.token_id,
        logprob=one.logprob,
        top=[Logprob(*pair) for pair in one.top],
    )
