"""Whether a server shall be asked: a circuit breaker as a pure state machine over given times.

Closed: it is asked. Open: it failed several times in a row and is left alone for a while. Then
one request tries it, and its outcome decides.
"""

from dataclasses import dataclass
from enum import StrEnum


class Circuit(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    TRYING = "trying"


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerSettings:
    """`failures` in a row open it for `rest_s`, doubled with every failed try to `most_rest_s`."""

    failures: int = 3
    rest_s: float = 1.0
    most_rest_s: float = 60.0

    def __post_init__(self) -> None:
        if self.failures < 1 or not 0 < self.rest_s <= self.most_rest_s:
            raise ValueError("breaker: failures >= 1 and 0 < rest_s <= most_rest_s must hold")


class Breaker:
    """Every `begin` is followed by one of `succeeded`, `failed` or `abandoned`."""

    def __init__(self, settings: BreakerSettings | None = None) -> None:
        self._settings = settings or BreakerSettings()
        self._failed_in_row = 0
        self._rest_s = self._settings.rest_s
        self._open_until: float | None = None
        self._paused_until = 0.0
        self._is_tried = False
        self.num_openings = 0

    def circuit(self, now_s: float) -> Circuit:
        if self._open_until is None:
            return Circuit.CLOSED
        return Circuit.OPEN if self._is_tried or now_s < self._open_until else Circuit.TRYING

    def allows(self, now_s: float) -> bool:
        return now_s >= self._paused_until and self.circuit(now_s) is not Circuit.OPEN

    def ready_at(self, now_s: float) -> float:
        """When it may be asked again; `now_s` when it may be asked now."""
        return max(now_s, self._paused_until, self._open_until or now_s)

    def begin(self, now_s: float) -> None:
        assert self.allows(now_s), "asked for leave first"
        self._is_tried = self._open_until is not None

    def succeeded(self) -> None:
        """It answered, be it with a refusal."""
        self._failed_in_row = 0
        self._rest_s = self._settings.rest_s
        self._open_until = None
        self._is_tried = False

    def failed(self, now_s: float) -> None:
        self._failed_in_row += 1
        if self._open_until is not None and self._is_tried:
            self._rest_s = min(2 * self._rest_s, self._settings.most_rest_s)
            self._open(now_s)
        elif self._open_until is None and self._failed_in_row >= self._settings.failures:
            self._open(now_s)
        self._is_tried = False

    def abandoned(self) -> None:
        """The request ended without telling: its client left."""
        self._is_tried = False

    def pause(self, until_s: float) -> None:
        """It is well and asked to be left alone: Retry-After."""
        self._paused_until = max(self._paused_until, until_s)

    def _open(self, now_s: float) -> None:
        self._open_until = now_s + self._rest_s
        self.num_openings += 1
