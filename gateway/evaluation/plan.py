"""What is to be asked: which samples, by which ways; a plan says so completely and asks nobody."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from enum import StrEnum

from gateway.evaluation.needles import Task


class EvaluationError(Exception):
    """A sentence for the user: the evaluation cannot go on."""


class Arm(StrEnum):
    """A way to ask: a fidelity of Ringway's, no fidelity at all, or a baseline."""

    FULL = "full"
    HIERARCHICAL = "hierarchical"
    RETRIEVAL = "retrieval"
    AUTO = "auto"
    PLAIN = "plain"
    """As any OpenAI-compatible server is asked."""
    TRUNCATE = "truncate"
    """The middle of the text left out, down to what retrieval read of the same sample."""


ROUTES = tuple(arm for arm in Arm if arm is not Arm.TRUNCATE)
BASELINES = (Arm.TRUNCATE,)


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleKey:
    """`depth` counts from 0 at the text's start; `number` tells samples of one cell apart."""

    task: Task
    length: int
    depth: int
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalPlan:
    """All that decides about prompts. `read_tokens` is what a truncated prompt may have; None:
    what retrieval read. `edition` is of the words they are made of; 1 was not written down."""

    model: str
    seed: int
    lengths: tuple[int, ...]
    num_depths: int
    samples: int
    tasks: tuple[Task, ...]
    arms: tuple[Arm, ...]
    max_tokens: int
    chunk_tokens: int
    read_tokens: int | None
    haystack: str
    haystack_digest: str
    edition: int = 1

    def __post_init__(self) -> None:
        if not (self.lengths and self.tasks and self.arms):
            raise ValueError("name at least one length, one task and one route")
        if min(*self.lengths, self.num_depths, self.samples, self.max_tokens) < 1:
            raise ValueError("lengths, depths, samples and answer tokens must be at least 1")
        if self.chunk_tokens < 1 or (self.read_tokens is not None and self.read_tokens < 1):
            raise ValueError("--chunk-tokens and --read-budget must be at least 1")
        if Arm.TRUNCATE in self.arms and self.read_tokens is None:
            if Arm.RETRIEVAL not in self.arms:
                raise ValueError(
                    "the baseline truncate reads as much as retrieval does: add the route "
                    "retrieval, or give --read-budget"
                )
            if self.arms.index(Arm.TRUNCATE) < self.arms.index(Arm.RETRIEVAL):
                raise ValueError("truncate must come after retrieval")

    def keys(self) -> Iterator[SampleKey]:
        """The short ones first; every depth once before any twice."""
        for length in sorted(self.lengths):
            for number in range(self.samples):
                for task in self.tasks:
                    for depth in range(self.num_depths):
                        yield SampleKey(task=task, length=length, depth=depth, number=number)

    @property
    def num_records(self) -> int:
        cells = len(self.lengths) * len(self.tasks) * self.num_depths
        return cells * self.samples * len(self.arms)

    def differences(self, other: "EvalPlan") -> list[str]:
        names = [one.name for one in fields(self)]
        return [
            f"{name} was {getattr(other, name)}, and is {getattr(self, name)}"
            for name in names
            if getattr(self, name) != getattr(other, name)
        ]
