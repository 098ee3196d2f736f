"""What the gateway's rooms may know of tenants: callers, what a key grants, claims on its limits.

Knows no HTTP, no database and no Redis.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from gateway.api import Fidelity, GatewayError
from ingest.api import LOCAL

WINDOW_S = 60
"""Limits per minute hold for every window of this length, not only on average."""


class Limit(StrEnum):
    REQUESTS = "requests"
    TOKENS = "tokens"
    LONG_PROMPTS = "long_prompts"
    BUDGET = "budget"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grants:
    """What a key may do. None is no limit; the budget is in millionths of the price's unit."""

    models: tuple[str, ...] | None = None
    fidelities: tuple[Fidelity, ...] | None = None
    requests_per_min: int | None = None
    tokens_per_min: int | None = None
    long_prompts: int | None = None
    monthly_budget_micros: int | None = None

    def __post_init__(self) -> None:
        for name in ("requests_per_min", "tokens_per_min", "long_prompts", "monthly_budget_micros"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, or absent")

    @property
    def is_limited(self) -> bool:
        caps = (self.requests_per_min, self.tokens_per_min, self.long_prompts)
        return any(cap is not None for cap in (*caps, self.monthly_budget_micros))


@dataclass(frozen=True, slots=True)
class Caller:
    """`key_id` is empty for keys without limits: configured ones, and none at all."""

    tenant: str = LOCAL
    key_id: str = ""
    grants: Grants = field(default_factory=Grants)


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """`reset_s` from now the limit is whole again, if nothing more is used."""

    limit: int
    remaining: int
    reset_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where a key stands with its limits per minute; None where it has none."""

    requests: Allowance | None = None
    tokens: Allowance | None = None


@dataclass(slots=True)
class Tab:
    """One HTTP request of a caller, and where the key stood when it was looked at last."""

    caller: Caller = field(default_factory=Caller)
    standing: Standing = field(default_factory=Standing)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What one request wants of its key's limits, at most.

    `id` is unique. With `lease_s` the claim also holds a place among long prompts and a part of
    the budget of `month` (`YYYY-MM`) until it is settled, or until nobody renews it.
    """

    id: str
    key_id: str
    grants: Grants
    month: str
    requests: int = 0
    tokens: int = 0
    micros: int = 0
    is_long: bool = False
    lease_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """What a claim came to. `month_micros` is all that the month cost so far, as kept on disk."""

    tokens: int
    micros: int
    month_micros: int


class Limits(Protocol):
    """Counts what keys use. Every method is atomic over all gateways that share the counter."""

    async def claim(self, claim: Claim) -> Standing:
        """Take all of the claim or nothing; taking it twice takes it once.

        Raises LimitReached, Unseeded when the month's spending is not known here, LimitsDown.
        """
        ...

    async def seed(self, key_id: str, month: str, micros: int) -> None:
        """Tell what the month cost before this counter knew of it. Raises LimitsDown."""
        ...

    async def settle(self, claim: Claim, used: Used) -> Standing:
        """Put what was used in the claim's place. Raises LimitsDown."""
        ...

    async def renew(self, claims: Sequence[Claim]) -> None:
        """Hold these for another lease from now. Raises LimitsDown."""
        ...

    async def aclose(self) -> None: ...


class Unseeded(Exception):
    """A verdict, caught by whoever claims: seed the month and claim again."""


class LimitsDown(GatewayError):
    """The shared counter does not answer."""


class LimitReached(GatewayError):
    """A claim was refused; nothing of it was taken. `used` of `limit` were in use."""

    def __init__(
        self, *, kind: Limit, wanted: int, used: int, limit: int, retry_after_s: float
    ) -> None:
        super().__init__(_SENTENCES[kind].format(wanted=wanted, used=used, limit=limit))
        self.kind = kind
        self.wanted = wanted
        self.used = used
        self.limit = limit
        self.retry_after_s = retry_after_s


class RequestOverLimit(GatewayError):
    """The request alone is more than its key's limit: no waiting helps."""

    def __init__(self, *, kind: Limit, wanted: int, limit: int, fits: str) -> None:
        super().__init__(
            f"Request too large for this key: it needs up to {wanted} {_UNITS[kind]}; the limit is "
            f"{limit}. {fits}"
        )
        self.kind = kind
        self.wanted = wanted
        self.limit = limit


class FidelityForbidden(GatewayError):
    def __init__(self, fidelity: Fidelity, allowed: Sequence[Fidelity]) -> None:
        names = ", ".join(f"'{one}'" for one in allowed)
        super().__init__(f"This key may not ask for fidelity '{fidelity}'; it may ask for {names}.")
        self.fidelity = fidelity


_UNITS = {
    Limit.REQUESTS: "requests per minute",
    Limit.TOKENS: "tokens per minute",
    Limit.LONG_PROMPTS: "long prompts at a time",
    Limit.BUDGET: "millionths of the month's budget",
}

_SENTENCES = {
    kind: f"Rate limit reached for this key: {{used}} of {{limit}} {unit} are in use and this "
    "request needs up to {wanted}."
    for kind, unit in _UNITS.items()
}
