"""How long a prefill takes, t = k (n + c n^2), learned from prefills seen; pure, no clock.

Knows tokens and seconds only. Estimates stay between bounds whatever was observed.
"""

from collections import deque
from dataclasses import dataclass
from statistics import median

WINDOW = 32
LEAST_TOKENS = 512
"""Shorter prompts tell of latency, not of prefill."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PaceSettings:
    """Where learning starts, and how far it goes.

    The start is slow, 1,000 tokens/s, so that a first deadline never cuts a healthy engine. The
    default `c` fits published times of one GPU: 67,000 tokens in 51 s, 202,000 in 256 s.
    """

    k: float = 1e-3
    c: float = 7.5e-6
    least_k: float = 1e-6
    most_k: float = 2e-2
    most_c: float = 1e-4
    slack: float = 4.0
    """A deadline is this many times the estimate,"""
    least_s: float = 30.0
    """and never less than this."""

    def __post_init__(self) -> None:
        if not 0 < self.least_k <= self.k <= self.most_k or not 0 <= self.c <= self.most_c:
            raise ValueError("pace: 0 < least_k <= k <= most_k and 0 <= c <= most_c must hold")
        if self.slack < 1 or self.least_s <= 0:
            raise ValueError("pace: slack must be at least 1 and least_s positive")


class Pace:
    def __init__(self, settings: PaceSettings | None = None) -> None:
        self._settings = settings or PaceSettings()
        self._seen: deque[tuple[int, float]] = deque(maxlen=WINDOW)
        self._fit: tuple[float, float] | None = (self._settings.k, self._settings.c)

    def observe(self, num_tokens: int, seconds: float) -> None:
        """A prefill of `num_tokens` that no cache helped took `seconds`."""
        if num_tokens >= LEAST_TOKENS and seconds > 0:
            self._seen.append((num_tokens, seconds))
            self._fit = None

    @property
    def k(self) -> float:
        return self._fitted()[0]

    @property
    def c(self) -> float:
        return self._fitted()[1]

    def estimate_s(self, num_tokens: int) -> float:
        k, c = self._fitted()
        return k * (num_tokens + c * num_tokens * num_tokens)

    def deadline_s(self, num_tokens: int) -> float:
        """Seconds to wait for the first byte of an answer to `num_tokens` of prefill."""
        return max(self._settings.least_s, self._settings.slack * self.estimate_s(num_tokens))

    def _fitted(self) -> tuple[float, float]:
        if self._fit is None:
            self._fit = self._bounded(*self._line())
        return self._fit

    def _line(self) -> tuple[float, float]:
        """t/n is a line in n: its slope by Theil and Sen, which ignores strays up to 29 %."""
        rates = [(num, seconds / num) for num, seconds in self._seen]
        slopes = [
            (b - a) / (m - n)
            for i, (n, a) in enumerate(rates)
            for m, b in rates[:i]
            if abs(m - n) * 4 > max(m, n)
        ]
        # Prompts of one length show no curve: the one known so far then stays.
        if not slopes:
            c = self._settings.c
            return median(rate / (1 + c * num) for num, rate in rates), c
        slope = max(0.0, median(slopes))
        start = median(rate - slope * num for num, rate in rates)
        if start <= 0:
            return self._settings.least_k, self._settings.most_c
        return start, slope / start

    def _bounded(self, k: float, c: float) -> tuple[float, float]:
        settings = self._settings
        return (
            min(max(k, settings.least_k), settings.most_k),
            min(max(c, 0.0), settings.most_c),
        )
