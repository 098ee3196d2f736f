"""Drives an Executor as a supervisor would, one request at a time."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count, pairwise
from pathlib import Path

from engines.api import Attention, GenerateRequest
from engines.config import EngineConfig, HierarchicalConfig, SegmentsConfig
from engines.gang.messages import (
    Ask,
    Decode,
    Encode,
    Open,
    Prefill,
    Sampled,
    SamplingSpec,
    Span,
    Step,
    StepDone,
)
from engines.local.executor import Executor
from engines.local.ring import RingGroup
from tests.engines.local.families import VOCAB, Answer

SMALL_CHUNKS = HierarchicalConfig(chunk_tokens=48, anchor_tokens=8, top_k=3)


def packed_ids(ids: Sequence[int]) -> bytes:
    return array("i", ids).tobytes()


def spec_of(  # noqa: PLR0913
    temperature: float = 0.0,
    top_p: float = 1.0,
    top_k: int = 0,
    seed: int = 0,
    presence_penalty: float = 0.0,
    frequency_penalty: float = 0.0,
    logit_bias: dict[int, float] | None = None,
    top_logprobs: int | None = None,
) -> SamplingSpec:
    return SamplingSpec(
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        seed=seed,
        presence_penalty=presence_penalty,
        frequency_penalty=frequency_penalty,
        logit_bias=logit_bias or {},
        top_logprobs=top_logprobs,
    )


GREEDY = spec_of(top_logprobs=VOCAB)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    prompt: list[int]
    num_tokens: int = 8
    replay: list[int] = field(default_factory=list)
    chunk: int = 1 << 30
    sampling: SamplingSpec = GREEDY
    hierarchical: bool = False
    question_start: int = 0
    document_starts: list[int] = field(default_factory=list)
    cache_key: str = ""


def request_of(case: Case) -> GenerateRequest:
    return GenerateRequest(
        request_id="r",
        prompt_ids=array("i", case.prompt),
        max_new_tokens=case.num_tokens,
        attention=Attention.HIERARCHICAL if case.hierarchical else Attention.FULL,
        question_start=case.question_start,
        document_starts=tuple(case.document_starts),
    )


def never(_: int) -> bool:
    return False


class Driver:
    """One executor and the step counter of its supervisor."""

    def __init__(
        self,
        folder: Path,
        group: RingGroup,
        hierarchical: HierarchicalConfig,
        dtype: str = "float32",
        segments: SegmentsConfig = SegmentsConfig(),  # noqa: B008 (frozen)
    ) -> None:
        self.config = EngineConfig(
            model_dir=folder,
            model_name="tiny",
            ranks=group.size,
            dtype=dtype,
            hierarchical=hierarchical,
            segments=segments,
        )
        self.executor = Executor.load(self.config, group)
        self.done: list[StepDone] = []
        self.kv_tokens = 0
        self._ids = count(1)

    def open(self, sequence_id: int, case: Case) -> None:
        self.executor.open(
            Open(
                sequence_id=sequence_id,
                hierarchical=case.hierarchical,
                prompt_ids=packed_ids(case.prompt),
                replay_ids=packed_ids(case.replay),
                max_new_tokens=case.num_tokens + len(case.replay),
                question_start=case.question_start,
                document_starts=case.document_starts,
                sampling=case.sampling,
                cache_key=case.cache_key,
            )
        )

    def run(self, step: Step) -> list[Sampled]:
        done = self.executor.run(step, never)
        assert not done.aborted
        self.done.append(done)
        return done.sampled

    def first(self, sequence_id: int, case: Case) -> Sampled:
        """Open, read the prompt, and the first sampled token."""
        self.open(sequence_id, case)
        if case.hierarchical:
            self._ask(sequence_id)
        sequence = self.executor.sequences[sequence_id]
        edges = (0, sequence.num_asked, len(sequence.ids_T))
        sampled: list[Sampled] = []
        for first, last in pairwise(edges):
            for start in range(first, last, case.chunk):
                assert sampled == []
                stop = min(last, start + case.chunk)
                step_id = next(self._ids)
                sampled = self.run(
                    Prefill(step_id=step_id, sequence_id=sequence_id, start=start, stop=stop)
                )
        return sampled[0]

    def _ask(self, sequence_id: int) -> None:
        context = self.executor.sequences[sequence_id].context
        assert context is not None
        for first in range(0, len(context.plan.chunks), 3):
            last = min(first + 3, len(context.plan.chunks))
            self.run(
                Encode(step_id=next(self._ids), sequence_id=sequence_id, first=first, last=last)
            )
        assert self.run(Ask(step_id=next(self._ids), sequence_id=sequence_id)) == []

    def decode(self, *sequence_ids: int) -> list[Sampled]:
        return self.run(Decode(step_id=next(self._ids), sequence_ids=list(sequence_ids)))

    def answer(self, case: Case) -> list[Sampled]:
        sampled = [self.first(1, case)]
        while len(sampled) < case.num_tokens:
            sampled.extend(self.decode(1))
        sequence = self.executor.sequences[1]
        anchor_tokens = sequence.context.anchor.store.capacity if sequence.context else 0
        self.kv_tokens = anchor_tokens + sequence.kv.store.capacity
        self.executor.close(1)
        return sampled

    def spans(self) -> tuple[list[Span], float]:
        """What the latest Ask looked at."""
        asked = next(done for done in reversed(self.done) if done.recall is not None)
        assert asked.recall is not None
        return asked.spans, asked.recall


def answer_of(sampled: Sequence[Sampled]) -> Answer:
    """Dense log-probabilities again; every case must have asked for the whole vocabulary."""
    rows: list[list[float]] = []
    for one in sampled:
        row = [float("nan")] * VOCAB
        for pair in one.top:
            row[pair.id] = pair.logprob
        rows.append(row)
    return Answer([one.token_id for one in sampled], rows)
