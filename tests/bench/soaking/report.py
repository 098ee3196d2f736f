"""What a soak's last line tells, and whether that is good."""

from dataclasses import dataclass

MOST_GROWTH = 0.02
MOST_GROWTH_MB = 10.0
SPARE = 8
"""Descriptors, threads and tasks more than after the warm-up: kept connections and pools."""


@dataclass(slots=True)
class Report:
    """What the last line tells. What `is_clean` looks at should be 0, or within bounds."""

    requests: int = 0
    disconnects: int = 0
    upstream_faults: int = 0
    answered: int = 0
    rss_growth: float = 0.0
    rss_growth_mb: float = 0.0
    stuck_slots: int = 0
    limit_error_tokens: int = 0
    budget_error_micros: int = 0
    generations_checked: int = 0
    generations_unchecked: int = 0
    starved_s: float = 0.0
    """The longest time that the bench itself did not run: another's load, not the gateway's."""
    unanswered: int = 0
    not_ended_once: int = 0
    fds_more: int = 0
    threads_more: int = 0
    tasks_more: int = 0
    errors_logged: int = 0
    broken_users: int = 0

    @property
    def is_clean(self) -> bool:
        exact = (
            self.stuck_slots,
            self.limit_error_tokens,
            self.budget_error_micros,
            self.unanswered,
            self.not_ended_once,
            self.errors_logged,
            self.broken_users,
        )
        is_flat = self.rss_growth <= MOST_GROWTH or self.rss_growth_mb <= MOST_GROWTH_MB
        more = max(self.fds_more, self.threads_more, self.tasks_more)
        is_checked = self.generations_checked > self.generations_unchecked
        return not any(exact) and is_flat and is_checked and more <= SPARE
