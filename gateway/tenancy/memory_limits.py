"""`Limits` in this process's memory: the default, and the oracle of the shared one."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gateway.tenancy.api import (
    WINDOW_S,
    Claim,
    Limit,
    LimitReached,
    Standing,
    Unseeded,
    Used,
)
from gateway.tenancy.standing import standing_of, until_next_month_s

LONG_PROMPT_RETRY_S = 5.0
"""When a long prompt ends is unknown; asking more often than this is of no use."""


@dataclass(slots=True)
class Entry:
    at_s: float
    requests: int
    tokens: int


@dataclass(slots=True)
class Held:
    until_s: float
    claim: Claim


@dataclass(slots=True)
class Account:
    """`window` is in order of time, and its sums are kept beside it."""

    window: OrderedDict[str, Entry] = field(default_factory=OrderedDict)
    requests: int = 0
    tokens: int = 0
    held: dict[str, Held] = field(default_factory=dict)
    spent: dict[str, int] = field(default_factory=dict)


class MemoryLimits:
    """`clock` is Unix seconds. Every method runs without a pause, so it is atomic."""

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._accounts: dict[str, Account] = {}

    async def claim(self, claim: Claim) -> Standing:
        now_s = self._clock()
        account = self._account(claim.key_id, now_s)
        if claim.id not in account.window and claim.id not in account.held:
            _refuse_over(claim, account, now_s)
            if claim.requests or claim.tokens:
                _enter(account, claim.id, Entry(now_s, claim.requests, claim.tokens))
            if claim.lease_s:
                account.held[claim.id] = Held(now_s + claim.lease_s, claim)
        return _standing(claim, account, now_s)

    async def seed(self, key_id: str, month: str, micros: int) -> None:
        self._account(key_id, self._clock()).spent.setdefault(month, micros)

    async def settle(self, claim: Claim, used: Used) -> Standing:
        now_s = self._clock()
        account = self._account(claim.key_id, now_s)
        entry = account.window.get(claim.id)
        if entry is not None:
            account.tokens += used.tokens - entry.tokens
            entry.tokens = used.tokens
        elif used.tokens > claim.tokens:
            _enter(account, f"{claim.id}+", Entry(now_s, 0, used.tokens - claim.tokens))
        is_fresh = account.held.pop(claim.id, None) is not None
        if claim.month in account.spent or used.month_micros:
            spent = account.spent.get(claim.month, 0) + (used.micros if is_fresh else 0)
            account.spent[claim.month] = max(spent, used.month_micros)
        return _standing(claim, account, now_s)

    async def renew(self, claims: Sequence[Claim]) -> None:
        now_s = self._clock()
        for claim in claims:
            held = self._account(claim.key_id, now_s).held.get(claim.id)
            if held is not None:
                held.until_s = now_s + claim.lease_s

    async def aclose(self) -> None:
        return None

    def _account(self, key_id: str, now_s: float) -> Account:
        """The key's account without what has run out."""
        account = self._accounts.setdefault(key_id, Account())
        while account.window:
            entry_id, entry = next(iter(account.window.items()))
            if entry.at_s > now_s - WINDOW_S:
                break
            del account.window[entry_id]
            account.requests -= entry.requests
            account.tokens -= entry.tokens
        for claim_id in [one for one, held in account.held.items() if held.until_s <= now_s]:
            del account.held[claim_id]
        return account


def _enter(account: Account, entry_id: str, entry: Entry) -> None:
    account.window[entry_id] = entry
    account.requests += entry.requests
    account.tokens += entry.tokens


def _refuse_over(claim: Claim, account: Account, now_s: float) -> None:
    grants = claim.grants
    long = sum(held.claim.is_long for held in account.held.values())
    held = sum(one.claim.micros for one in account.held.values() if one.claim.month == claim.month)
    budget = grants.monthly_budget_micros
    if budget is not None and claim.lease_s and claim.month not in account.spent:
        raise Unseeded
    spent = account.spent.get(claim.month, 0) + held
    month_s = until_next_month_s(now_s)
    checks = (
        (Limit.REQUESTS, grants.requests_per_min, claim.requests, account.requests, None),
        (Limit.TOKENS, grants.tokens_per_min, claim.tokens, account.tokens, None),
        (Limit.LONG_PROMPTS, grants.long_prompts, int(claim.is_long), long, LONG_PROMPT_RETRY_S),
        (Limit.BUDGET, budget, claim.micros, spent, month_s),
    )
    for kind, limit, wanted, used, wait_s in checks:
        if limit is None or wanted == 0 or used + wanted <= limit:
            continue
        if wait_s is None:
            wait_s = _wait_s(account, kind, used + wanted - limit, now_s)
        raise LimitReached(kind=kind, wanted=wanted, used=used, limit=limit, retry_after_s=wait_s)


def _wait_s(account: Account, kind: Limit, excess: int, now_s: float) -> float:
    """Until so much of the window has passed that `excess` fits."""
    for entry in account.window.values():
        excess -= entry.requests if kind is Limit.REQUESTS else entry.tokens
        if excess <= 0:
            return entry.at_s + WINDOW_S - now_s
    return float(WINDOW_S)


def _standing(claim: Claim, account: Account, now_s: float) -> Standing:
    newest = next(reversed(account.window.values())).at_s if account.window else now_s - WINDOW_S
    return standing_of(
        claim.grants, account.requests, account.tokens, reset_s=newest + WINDOW_S - now_s
    )
