"""When to try a failed job again. Pure: knows neither the clock nor the job."""

from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    max_attempts: int = 5
    base_delay_s: float = 1.0
    max_delay_s: float = 120.0

    def __post_init__(self) -> None:
        if self.max_attempts < 1:
            raise ValueError(f"max_attempts must be 1 or more, not {self.max_attempts}")
        if not 0 <= self.base_delay_s <= self.max_delay_s:
            raise ValueError("delays must satisfy 0 <= base_delay_s <= max_delay_s")


def delay_before(attempt: int, policy: RetryPolicy, rng: Random) -> float:
    """Seconds to wait before `attempt` (2 is the first retry), with full jitter."""
    doublings = min(max(attempt - 2, 0), 30)
    ceiling = min(policy.max_delay_s, policy.base_delay_s * 2.0**doublings)
    return rng.uniform(0.0, ceiling)
