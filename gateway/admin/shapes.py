"""The shapes of the last requests: counts and fidelities, never text. Knows no policy."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from gateway.api import Fidelity
from gateway.routing import Counts, EngineFacts

MOST_SHAPES = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """All that `routing.choose` looks at, for one request that was counted."""

    counts: Counts
    fidelity: Fidelity
    allow_fallback: bool
    facts: EngineFacts


class Shapes:
    """The newest `size` shapes."""

    def __init__(self, size: int = MOST_SHAPES) -> None:
        self._ring: deque[Shape] = deque(maxlen=size)

    def record(self, shape: Shape) -> None:
        self._ring.append(shape)

    def __len__(self) -> int:
        return len(self._ring)

    def __iter__(self) -> Iterator[Shape]:
        """The oldest first, as they were when this was called."""
        return iter(tuple(self._ring))
