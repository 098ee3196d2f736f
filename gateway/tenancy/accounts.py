"""Keeps every request to what its key grants: admitted, reserved before, settled once after.

Knows tasks, policies and prices; no HTTP, and not where limits are counted.
"""

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from gateway import logs
from gateway.api import UnknownModel
from gateway.asks import Ask
from gateway.routes.task import Task
from gateway.routing import read_tokens
from gateway.tenancy import current
from gateway.tenancy.api import (
    Allowance,
    Caller,
    Claim,
    FidelityForbidden,
    Limit,
    LimitReached,
    Limits,
    LimitsDown,
    RequestOverLimit,
    Standing,
    Tab,
    Unseeded,
    Used,
)
from gateway.tenancy.metered import Meter
from gateway.tenancy.prices import cost_micros, counted_tokens, most_micros, price_of
from gateway.tenancy.spending import Spending
from gateway.tenancy.standing import month_of
from ingest.api import TransientError

logger = logging.getLogger(__name__)

LEASE_S = 60.0
RENEW_EVERY_S = 20.0


@dataclass(slots=True)
class Counted:
    tokens: int = 0


class Accounts:
    """`refused` is told every refusal. Times are Unix seconds."""

    def __init__(
        self,
        limits: Limits,
        spending: Spending,
        *,
        clock: Callable[[], float],
        refused: Callable[[str], None] = lambda kind: None,
    ) -> None:
        self._limits = limits
        self._spending = spending
        self._clock = clock
        self._refused = refused
        self._open: dict[str, Claim] = {}
        self._settling: set[asyncio.Task[None]] = set()

    @property
    def num_open(self) -> int:
        """Reservations that are not settled yet."""
        return len(self._open)

    async def admit(self, tab: Tab) -> None:
        """Count one request of the tab's caller. Raises LimitReached or LimitsDown."""
        if tab.caller.grants.is_limited:
            await self._claim(tab, self._new_claim(tab.caller, requests=1))

    @asynccontextmanager
    async def hold(self, task: Task) -> AsyncIterator[Meter]:
        """Reserve what the task may take, and settle it with what the meter saw, however the
        block ends. Raises LimitReached, RequestOverLimit or LimitsDown."""
        meter = Meter()
        tab = task.ask.tab
        if tab is None or not tab.caller.grants.is_limited:
            yield meter
            return
        claim = self._claim_of(task, tab.caller)
        try:
            _refuse_never(task, claim)
        except RequestOverLimit as error:
            self._refused(error.kind)
            raise
        await self._claim(tab, claim)
        self._open[claim.id] = claim

        async def settle() -> None:
            used = _used(task, meter)
            await self._finish(self._settle(tab, claim, used))

        meter.on_end = settle
        try:
            yield meter
        finally:
            await meter.end()

    @asynccontextmanager
    async def counting(self, model: str) -> AsyncIterator[Counted]:
        """For work that no planner sees and whose tokens are known only afterwards: refused once
        the limit is reached, counted when the block ends. What it costs is not counted.

        Raises UnknownModel, LimitReached or LimitsDown."""
        counted = Counted()
        tab = current.tab.get()
        if tab is not None:
            refuse_ungranted_model(model, tab)
        if tab is None or not tab.caller.grants.is_limited:
            yield counted
            return
        claim = replace(self._new_claim(tab.caller), tokens=1)
        await self._claim(tab, claim)
        try:
            yield counted
        finally:
            used = _told(Used(tokens=counted.tokens, micros=0, month_micros=0))
            await self._finish(self._settle_limits(tab, claim, used))

    async def renew(self) -> None:
        """Hold the open claims for another lease."""
        try:
            await self._limits.renew(list(self._open.values()))
        except LimitsDown as error:
            logger.warning("leases not renewed", extra={"cause": str(error)})

    async def keep_renewing(self) -> None:
        while True:
            await asyncio.sleep(RENEW_EVERY_S)
            await self.renew()

    async def aclose(self) -> None:
        """Returns when everything is settled."""
        if self._settling:
            await asyncio.wait(self._settling)
        await self._limits.aclose()

    def _new_claim(self, caller: Caller, *, requests: int = 0) -> Claim:
        return Claim(
            id=secrets.token_hex(8),
            key_id=caller.key_id,
            grants=caller.grants,
            month=month_of(self._clock()),
            requests=requests,
        )

    def _claim_of(self, task: Task, caller: Caller) -> Claim:
        policy = task.policy
        reads, new = most_of(task)
        plans = [plan for plan in (task.plan, task.escalation) if plan is not None]
        length = task.counts.prompt_tokens
        prices = [price_of(plan.route, length, policy) for plan in plans]
        return replace(
            self._new_claim(caller),
            tokens=reads + new,
            micros=max(most_micros(price, reads, new) for price in prices),
            is_long=reads >= policy.tenancy.long_prompt_tokens,
            lease_s=LEASE_S,
        )

    async def _claim(self, tab: Tab, claim: Claim) -> None:
        try:
            try:
                tab.standing = await self._limits.claim(claim)
            except Unseeded:
                spent = await self._spending.of(claim.key_id, claim.month)
                await self._limits.seed(claim.key_id, claim.month, spent)
                tab.standing = await self._limits.claim(claim)
        except LimitReached as error:
            tab.standing = _standing_after(tab.standing, error)
            self._refused(error.kind)
            raise
        except LimitsDown:
            self._refused("unavailable")
            raise

    async def _finish(self, work: Awaitable[None]) -> None:
        """Await `work`, which goes on even if its request is cancelled once more meanwhile."""
        running = asyncio.ensure_future(work)
        self._settling.add(running)
        running.add_done_callback(self._settling.discard)
        await asyncio.shield(running)

    async def _settle(self, tab: Tab, claim: Claim, used: Used) -> None:
        self._open.pop(claim.id, None)
        if used.micros:
            try:
                spent = await self._spending.add(claim.key_id, claim.month, used.micros)
                used = replace(used, month_micros=spent)
            except TransientError:
                told = {"key_id": claim.key_id, "micros": used.micros}
                logger.exception("spending not kept", extra=told)
        await self._settle_limits(tab, claim, used)

    async def _settle_limits(self, tab: Tab, claim: Claim, used: Used) -> None:
        try:
            tab.standing = await self._limits.settle(claim, used)
        except LimitsDown as error:
            logger.warning("not settled; the lease ends it", extra={"cause": str(error)})


def _used(task: Task, meter: Meter) -> Used:
    """What the meter saw, counted and priced; the request's log line has it from here on, however
    soon its client leaves."""
    usage, route = meter.usage, meter.route or task.plan.route
    price = price_of(route, task.counts.prompt_tokens, task.policy)
    tokens = counted_tokens(usage, task.policy)
    return _told(Used(tokens=tokens, micros=cost_micros(price, usage), month_micros=0))


def _told(used: Used) -> Used:
    logs.add(charged_tokens=used.tokens, charged_micros=used.micros)
    return used


def refuse_ungranted(ask: Ask) -> None:
    """Raises UnknownModel or FidelityForbidden for what the key does not grant."""
    if ask.tab is None:
        return
    grants = ask.tab.caller.grants
    refuse_ungranted_model(ask.model, ask.tab)
    if grants.fidelities is not None and ask.fidelity not in grants.fidelities:
        raise FidelityForbidden(ask.fidelity, grants.fidelities)


def refuse_ungranted_model(model: str, tab: Tab) -> None:
    """Raises UnknownModel: a key that may not use a model does not learn of it."""
    granted = tab.caller.grants.models
    if granted is not None and model not in granted:
        raise UnknownModel(model)


def most_of(task: Task) -> tuple[int, int]:
    """Tokens that the task reads and writes at most, by its route or by the one it escalates to."""
    reads = read_tokens(task.plan.route, task.counts, task.policy)
    new = task.plan.max_new_tokens
    if task.escalation is not None:
        reads = max(reads, read_tokens(task.escalation.route, task.counts, task.policy))
        new = max(new, task.escalation.max_new_tokens)
    return reads, new * task.ask.n


def _refuse_never(task: Task, claim: Claim) -> None:
    grants = claim.grants
    reads, new = most_of(task)
    limit = grants.tokens_per_min
    if limit is not None and claim.tokens > limit:
        fits = f"At most {max(0, limit - new)} tokens of prompt fit beside an answer of {new}"
        if reads < limit:
            fits += f"; beside this prompt, an answer of {(limit - reads) // task.ask.n}"
        raise RequestOverLimit(kind=Limit.TOKENS, wanted=claim.tokens, limit=limit, fits=f"{fits}.")
    budget = grants.monthly_budget_micros
    if budget is not None and claim.micros > budget:
        share = budget / claim.micros
        fits = f"About {int((reads + new) * share)} of its {reads + new} tokens would fit."
        raise RequestOverLimit(kind=Limit.BUDGET, wanted=claim.micros, limit=budget, fits=fits)


def _standing_after(standing: Standing, error: LimitReached) -> Standing:
    """What a refusal tells of the limit it is about."""
    told = Allowance(
        limit=error.limit,
        remaining=max(0, error.limit - error.used),
        reset_s=error.retry_after_s,
    )
    match error.kind:
        case Limit.REQUESTS:
            return replace(standing, requests=told)
        case Limit.TOKENS:
            return replace(standing, tokens=told)
        case _:
            return standing
