"""Finished samples, one JSON line each, safe against a kill at any moment; knows files only."""

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO

import msgspec

from gateway.evaluation.needles import Task
from gateway.evaluation.plan import Arm, EvalPlan, EvaluationError, SampleKey

PLAN_NAME, SAMPLES_NAME = "plan.json", "samples.jsonl"


class Outcome(StrEnum):
    ANSWERED = "answered"
    REFUSED = "refused"
    """The server would not take the prompt; no wrong answer."""
    FAILED = "failed"
    """The server broke down; asked again by the next run."""
    NOT_ASKED = "not_asked"
    """There was no such prompt to ask; `message` says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What one way of asking made of one sample. Seconds are the client's, `timing_ms` the
    server's; `said` of the `wanted` values were in `answer`."""

    task: Task
    length: int
    depth: int
    number: int
    arm: Arm
    outcome: Outcome
    digest: str = ""
    counted_tokens: int = 0
    wanted: tuple[str, ...] = ()
    answer: str = ""
    said: int = 0
    decoys_said: int = 0
    route: str | None = None
    prompt_tokens: int | None = None
    billed_tokens: int | None = None
    cached_tokens: int | None = None
    answer_tokens: int | None = None
    tokens_read: int | None = None
    evidence: float | None = None
    recall: float | None = None
    coverage: float | None = None
    first_token_s: float | None = None
    total_s: float | None = None
    timing_ms: Mapping[str, float] = field(default_factory=dict)
    code: str | None = None
    message: str | None = None
    limit: int | None = None

    @property
    def key(self) -> SampleKey:
        return SampleKey(task=self.task, length=self.length, depth=self.depth, number=self.number)

    @property
    def is_right(self) -> bool:
        return self.outcome is Outcome.ANSWERED and self.said == len(self.wanted)


class Journal:
    """The records of one folder; a later one of the same sample and way replaces the earlier."""

    def __init__(self, file: BinaryIO, records: dict[tuple[SampleKey, Arm], Record]) -> None:
        self._file = file
        self._records = records

    @classmethod
    @contextmanager
    def opened(cls, folder: Path, plan: EvalPlan, *, resume: bool) -> "Iterator[Journal]":
        """Raises EvaluationError when the folder holds another evaluation, or one to resume."""
        folder.mkdir(parents=True, exist_ok=True)
        samples = folder / SAMPLES_NAME
        if samples.exists() and not resume:
            raise EvaluationError(f"{folder} already holds an evaluation; --resume goes on with it")
        _check_plan(folder / PLAN_NAME, plan)
        with samples.open("ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise EvaluationError(f"another evaluation is writing to {folder}") from error
            yield cls(file, {(one.key, one.arm): one for one in _mended(samples)})

    @property
    def records(self) -> list[Record]:
        return list(self._records.values())

    def finished(self, key: SampleKey, arm: Arm) -> Record | None:
        found = self._records.get((key, arm))
        return None if found is None or found.outcome is Outcome.FAILED else found

    def add(self, record: Record) -> None:
        """On disk when this returns."""
        self._file.write(msgspec.json.encode(record) + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self._records[record.key, record.arm] = record


def _check_plan(path: Path, plan: EvalPlan) -> None:
    if path.exists():
        try:
            earlier = msgspec.json.decode(path.read_bytes(), type=EvalPlan)
        except msgspec.DecodeError as error:
            raise EvaluationError(f"{path} is not understood: {error}") from error
        if different := plan.differences(earlier):
            raise EvaluationError(f"{path.parent} holds another plan: {'; '.join(different)}")
        return
    new = path.with_suffix(".new")
    new.write_bytes(msgspec.json.format(msgspec.json.encode(plan)))
    new.replace(path)


def _mended(path: Path) -> list[Record]:
    """All whole lines; a last one that was cut by a kill is taken off the file."""
    body = path.read_bytes()
    whole = body.rfind(b"\n") + 1
    if whole < len(body):
        with path.open("r+b") as file:
            file.truncate(whole)
    records = []
    lines = body[:whole].splitlines()
    for number, line in enumerate(lines, start=1):
        try:
            records.append(msgspec.json.decode(line, type=Record))
        except msgspec.DecodeError as error:
            raise EvaluationError(f"{path}, line {number}, is not understood: {error}") from error
    return records
