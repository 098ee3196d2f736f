"""What two ways of reading made of the same prompts: kept line by line, and added up.

Knows answers and their scores; no engine and no clock.
"""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from engines.api import TokenLogprob
from tests.bench.needles import Task


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt: what `hierarchical` made of it, and `full` where the window lets it.

    `found`: every fact that the answer needs was read again. `work` is that of the attention, by
    that of `full`. `kl` and `match` are of answers that no grammar held.
    """

    task: Task
    length: int
    number: int
    right: bool
    found: bool
    work: float
    recall: float
    full_right: bool | None = None
    kl: float | None = None
    match: float | None = None

    @property
    def key(self) -> tuple[Task, int, int]:
        return self.task, self.length, self.number


class Line(msgspec.Struct, frozen=True, kw_only=True):
    setup: str
    pair: Pair


class Journal:
    """Finished pairs in a file, one line each; those of another setup are left where they are."""

    def __init__(self, path: Path | None, setup: str) -> None:
        self._path = path
        self._setup = setup
        self.pairs: dict[tuple[Task, int, int], Pair] = {}
        if path is not None and path.exists():
            for line in path.read_bytes().splitlines():
                self._take(line)

    def add(self, pair: Pair) -> None:
        self.pairs[pair.key] = pair
        if self._path is not None:
            with self._path.open("ab") as file:
                file.write(msgspec.json.encode(Line(setup=self._setup, pair=pair)) + b"\n")

    def _take(self, line: bytes) -> None:
        try:
            kept = msgspec.json.decode(line, type=Line)
        except msgspec.DecodeError:  # the last line of a run that was killed
            return
        if kept.setup == self._setup:
            self.pairs[kept.pair.key] = kept.pair


@dataclass(frozen=True, slots=True)
class Summary:
    """Shares of right answers over all prompts of a task, whatever their lengths."""

    pairs: Sequence[Pair]

    def ratio(self, task: Task) -> float:
        """Right answers by those of `full`, over the same prompts."""
        both = [p for p in self.pairs if p.task is task and p.full_right is not None]
        full = sum(bool(p.full_right) for p in both)
        return sum(p.right for p in both) / full if full else float("nan")

    def beyond(self, longest_within: int) -> float:
        """The share of single facts told past the window, by that at its edge."""
        single = [p for p in self.pairs if p.task is Task.SINGLE]
        further = share(p.right for p in single if p.length > longest_within)
        edge = share(p.right for p in single if p.length == longest_within)
        return further / edge if edge else float("nan")

    @property
    def work(self) -> float:
        """Of all prompts within the window together: that of `full` grows with their squares."""
        within = [p for p in self.pairs if p.full_right is not None]
        full = sum(p.length**2 for p in within)
        return sum(p.work * p.length**2 for p in within) / full if full else float("nan")

    @property
    def kl(self) -> float:
        return mean([p.kl for p in self.pairs if p.kl is not None])

    @property
    def match(self) -> float:
        return mean([p.match for p in self.pairs if p.match is not None])

    def table(self) -> list[str]:
        lines = [
            "| tokens | task | n | full | hierarchical | facts chosen | work | recall |",
            "|---|---|---|---|---|---|---|---|",
        ]
        for length, task in sorted({(p.length, p.task) for p in self.pairs}):
            some = [p for p in self.pairs if (p.length, p.task) == (length, task)]
            full = [p.full_right for p in some if p.full_right is not None]
            lines.append(
                f"| {length:,} | {task} | {len(some)} | {sum(full) if full else '-'} "
                f"| {sum(p.right for p in some)} | {sum(p.found for p in some)} "
                f"| {mean([p.work for p in some]):.3f} | {mean([p.recall for p in some]):.3f} |"
            )
        return lines


def divergence(full: Sequence[TokenLogprob], ours: Sequence[TokenLogprob]) -> float:
    """KL of the first token, over the likeliest of `full` and the rest taken together."""
    given = {one.id: math.exp(one.logprob) for one in ours}
    least = min(given.values(), default=1e-6)
    total = 0.0
    for one in full:
        p = math.exp(one.logprob)
        total += p * math.log(p / max(given.get(one.id, least), 1e-9))
    rest_p = max(1e-9, 1.0 - sum(math.exp(one.logprob) for one in full))
    rest_q = max(1e-9, 1.0 - sum(given.get(one.id, 0.0) for one in full))
    return total + rest_p * math.log(rest_p / rest_q)


def equal_tokens(full: Sequence[int], ours: Sequence[int]) -> float:
    """The share of the exact answer's tokens up to the first that differs."""
    equal = next((i for i, (a, b) in enumerate(zip(full, ours, strict=False)) if a != b), None)
    if equal is None:
        equal = min(len(full), len(ours))
    return equal / len(full) if full else 1.0


def share(right: Iterable[bool]) -> float:
    return mean([float(one) for one in right])


def mean(values: Sequence[float]) -> float:
    return statistics.fmean(values) if values else float("nan")
