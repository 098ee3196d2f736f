"""From records to shares with intervals and mean costs; pure, but for reading the result back."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import msgspec

from gateway.evaluation.journal import Outcome, Record
from gateway.evaluation.needles import Task
from gateway.evaluation.plan import Arm, EvalPlan, EvaluationError
from gateway.evaluation.scoring import wilson

RESULT_NAME, REPORT_NAME = "result.json", "report.html"
MOST_CHARS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Means over the answers; None where no answer said."""

    prompt_tokens: float | None = None
    tokens_read: float | None = None
    billed_tokens: float | None = None
    cached_tokens: float | None = None
    answer_tokens: float | None = None
    first_token_s: float | None = None
    total_s: float | None = None
    prefill_ms: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One way of asking at one length: of one task, or of all where `task` is None.

    `accuracy` is the share of the answers that said all that was wanted, `partial` the mean share
    of it that they said; both None when there is no answer. `low` to `high` is Wilson's 95 %.
    """

    arm: Arm
    task: Task | None
    length: int
    depth: int | None = None
    answered: int
    right: int
    refused: int
    failed: int
    not_asked: int
    accuracy: float | None
    partial: float | None
    low: float
    high: float
    cost: Cost


@dataclass(frozen=True, slots=True)
class Judged:
    """A searched answer: how strong the search thought its finds, and whether it was right."""

    evidence: float
    is_right: bool
    length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One answer in the model's own words, at most MOST_CHARS of them."""

    arm: Arm
    task: Task
    length: int
    depth: int
    wanted: tuple[str, ...]
    answer: str
    is_right: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """`depths` has a cell per way, length and depth, of all tasks together; `examples` an answer
    per way and task, a wrong one where there is one."""

    plan: EvalPlan
    cells: tuple[Cell, ...]
    depths: tuple[Cell, ...]
    evidence: tuple[Judged, ...]
    examples: tuple[Example, ...] = ()
    notes: tuple[str, ...] = ()

    def cell(self, arm: Arm, task: Task | None, length: int) -> Cell | None:
        wanted = (arm, task, length)
        return next((c for c in self.cells if (c.arm, c.task, c.length) == wanted), None)

    @property
    def lengths(self) -> tuple[int, ...]:
        return tuple(sorted(self.plan.lengths))


def summarize(plan: EvalPlan, records: Iterable[Record], notes: Sequence[str] = ()) -> Result:
    """The same for the same records in any order."""
    known = sorted(records, key=lambda one: (one.length, one.task, one.depth, one.number))
    cells: list[Cell] = []
    depths: list[Cell] = []
    for arm in plan.arms:
        for length in sorted(plan.lengths):
            of_cell = [one for one in known if one.arm is arm and one.length == length]
            cells.append(_cell(of_cell, arm, None, length, None))
            for task in plan.tasks:
                of_task = [one for one in of_cell if one.task is task]
                cells.append(_cell(of_task, arm, task, length, None))
            for depth in range(plan.num_depths):
                of_depth = [one for one in of_cell if one.depth == depth]
                depths.append(_cell(of_depth, arm, None, length, depth))
    evidence = [
        Judged(one.evidence, one.is_right, one.length)
        for one in known
        if one.arm is Arm.RETRIEVAL and one.evidence is not None
    ]
    return Result(
        plan=plan,
        cells=tuple(cells),
        depths=tuple(depths),
        evidence=tuple(evidence),
        examples=tuple(_examples(plan, known)),
        notes=tuple(notes),
    )


def _examples(plan: EvalPlan, records: Sequence[Record]) -> Iterator[Example]:
    for task in plan.tasks:
        for arm in plan.arms:
            answers = [
                one
                for one in records
                if (one.arm, one.task, one.outcome) == (arm, task, Outcome.ANSWERED)
            ]
            if not answers:
                continue
            one = min(answers, key=lambda each: each.is_right)
            yield Example(
                arm=arm,
                task=task,
                length=one.length,
                depth=one.depth,
                wanted=one.wanted,
                answer=one.answer[:MOST_CHARS],
                is_right=one.is_right,
            )


def load_result(folder: Path) -> Result:
    """Raises EvaluationError with a sentence."""
    path = folder / RESULT_NAME
    try:
        return msgspec.json.decode(path.read_bytes(), type=Result)
    except OSError as error:
        raise EvaluationError(
            f"cannot read {path}: {error.strerror}; `ringway eval --out {folder}` writes it"
        ) from error
    except msgspec.DecodeError as error:
        raise EvaluationError(f"{path} is not understood: {error}") from error


def _cell(
    records: Sequence[Record], arm: Arm, task: Task | None, length: int, depth: int | None
) -> Cell:
    answers = [one for one in records if one.outcome is Outcome.ANSWERED]
    right = sum(one.is_right for one in answers)
    low, high = wilson(right, len(answers))

    def num(outcome: Outcome) -> int:
        return sum(one.outcome is outcome for one in records)

    return Cell(
        arm=arm,
        task=task,
        length=length,
        depth=depth,
        answered=len(answers),
        right=right,
        refused=num(Outcome.REFUSED),
        failed=num(Outcome.FAILED),
        not_asked=num(Outcome.NOT_ASKED),
        accuracy=right / len(answers) if answers else None,
        partial=fmean(one.said / len(one.wanted) for one in answers) if answers else None,
        low=low,
        high=high,
        cost=_cost(answers),
    )


def _cost(answers: Sequence[Record]) -> Cost:
    def mean(of: Callable[[Record], float | None]) -> float | None:
        values = [value for value in map(of, answers) if value is not None]
        return fmean(values) if values else None

    return Cost(
        prompt_tokens=mean(lambda one: one.prompt_tokens),
        tokens_read=mean(lambda one: one.tokens_read),
        billed_tokens=mean(lambda one: one.billed_tokens),
        cached_tokens=mean(lambda one: one.cached_tokens),
        answer_tokens=mean(lambda one: one.answer_tokens),
        first_token_s=mean(lambda one: one.first_token_s),
        total_s=mean(lambda one: one.total_s),
        prefill_ms=mean(lambda one: one.timing_ms.get("prefill")),
    )
