"""Chance that is the same on every machine: knows a seed and a label, and nothing of text."""

import hashlib
from collections.abc import Iterable, Sequence
from random import Random
from typing import TypeVar

T = TypeVar("T")


class Dice:
    """Draws built on `Random.random()` alone.

    Python promises that sequence for ever; `choice`, `shuffle` and `sample` may change.
    The same (seed, label) gives the same draws; another label gives an independent stream.
    """

    __slots__ = ("_roll",)

    def __init__(self, seed: int, label: str) -> None:
        digest = hashlib.sha256(f"{seed}/{label}".encode()).digest()
        self._roll = Random(int.from_bytes(digest, "big")).random

    def below(self, stop: int) -> int:
        """An integer in [0, stop)."""
        return int(self._roll() * stop)

    def between(self, first: int, last: int) -> int:
        """An integer in [first, last]."""
        return first + self.below(last - first + 1)

    def chance(self, probability: float) -> bool:
        return self._roll() < probability

    def pick(self, options: Sequence[T]) -> T:
        return options[self.below(len(options))]

    def shuffled(self, items: Iterable[T]) -> list[T]:
        order = list(items)
        for last in range(len(order) - 1, 0, -1):
            other = self.below(last + 1)
            order[last], order[other] = order[other], order[last]
        return order
