"""What every `Limits` must do: the one in memory, and the one in a real Redis."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from gateway.tenancy.api import (
    Allowance,
    Claim,
    Grants,
    Limit,
    LimitReached,
    Limits,
    Standing,
    Unseeded,
    Used,
)
from gateway.tenancy.memory_limits import MemoryLimits
from gateway.tenancy.redis_limits import RedisLimits
from tests.gateway.tenancy.redis_server import redis_server

MONTH = "2026-12"
DECEMBER_S = 1_796_083_200.0
"""2026-12-01, midnight UTC."""


@dataclass(slots=True)
class Clock:
    now_s: float = DECEMBER_S

    def __call__(self) -> float:
        return self.now_s


@dataclass(slots=True)
class Bench:
    """`other` counts in the same place as `limits`, as a second gateway would."""

    limits: Limits
    other: Limits
    clock: Clock
    ids: int = field(default=0)

    def claim(self, grants: Grants, **values: object) -> Claim:
        self.ids += 1
        claim = Claim(id=f"c{self.ids}", key_id="key_1", grants=grants, month=MONTH)
        return replace(claim, **values)  # type: ignore[arg-type]


@pytest.fixture(params=["memory", pytest.param("redis", marks=pytest.mark.services)])
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    clock = Clock()
    if request.param == "memory":
        limits = MemoryLimits(clock=clock)
        yield Bench(limits, limits, clock)
        return
    with redis_server(tmp_path) as url:
        one, two = RedisLimits.connect(url, clock=clock), RedisLimits.connect(url, clock=clock)
        yield Bench(one, two, clock)
        await one.aclose()
        await two.aclose()


async def refused(limits: Limits, claim: Claim) -> LimitReached:
    with pytest.raises(LimitReached) as caught:
        await limits.claim(claim)
    return caught.value


async def test_a_window_of_a_minute_never_holds_more_than_the_limit(bench: Bench) -> None:
    grants = Grants(tokens_per_min=100)
    await bench.limits.claim(bench.claim(grants, tokens=60))
    bench.clock.now_s += 30
    await bench.other.claim(bench.claim(grants, tokens=40))
    error = await refused(bench.limits, bench.claim(grants, tokens=1))
    assert (error.kind, error.used, error.limit) == (Limit.TOKENS, 100, 100)
    assert error.retry_after_s == 30
    bench.clock.now_s += 29.9
    await refused(bench.limits, bench.claim(grants, tokens=1))
    bench.clock.now_s += 0.1
    standing = await bench.limits.claim(bench.claim(grants, tokens=60))
    assert standing.tokens == Allowance(limit=100, remaining=0, reset_s=60)


async def test_waiting_as_long_as_told_is_enough(bench: Bench) -> None:
    grants = Grants(tokens_per_min=100)
    for _ in range(4):
        await bench.limits.claim(bench.claim(grants, tokens=25))
        bench.clock.now_s += 5
    claim = bench.claim(grants, tokens=70)
    error = await refused(bench.limits, claim)
    assert error.retry_after_s == 50  # three entries must leave; the third came at 10 s
    bench.clock.now_s += error.retry_after_s
    await bench.limits.claim(claim)


async def test_requests_are_counted_like_tokens(bench: Bench) -> None:
    grants = Grants(requests_per_min=2)
    first = await bench.limits.claim(bench.claim(grants, requests=1))
    assert first == Standing(requests=Allowance(limit=2, remaining=1, reset_s=60))
    await bench.other.claim(bench.claim(grants, requests=1))
    error = await refused(bench.limits, bench.claim(grants, requests=1))
    assert (error.kind, error.wanted) == (Limit.REQUESTS, 1)


async def test_settling_puts_what_was_used_in_place_of_what_was_reserved(bench: Bench) -> None:
    grants = Grants(tokens_per_min=100)
    claim = bench.claim(grants, tokens=90, lease_s=60)
    await bench.limits.claim(claim)
    used = Used(tokens=25, micros=0, month_micros=0)
    standing = await bench.other.settle(claim, used)
    assert standing.tokens == Allowance(limit=100, remaining=75, reset_s=60)
    assert await bench.limits.settle(claim, used) == standing
    await bench.limits.claim(bench.claim(grants, tokens=75))
    await refused(bench.limits, bench.claim(grants, tokens=1))


async def test_more_used_than_reserved_counts_when_it_is_told(bench: Bench) -> None:
    grants = Grants(tokens_per_min=100)
    claim = bench.claim(grants, tokens=10, lease_s=600)
    await bench.limits.claim(claim)
    bench.clock.now_s += 90
    standing = await bench.limits.settle(claim, Used(tokens=50, micros=0, month_micros=0))
    assert standing.tokens == Allowance(limit=100, remaining=60, reset_s=60)


async def test_a_refused_claim_takes_nothing_and_a_repeated_one_takes_once(bench: Bench) -> None:
    grants = Grants(requests_per_min=5, tokens_per_min=10)
    claim = bench.claim(grants, requests=1, tokens=8)
    await bench.limits.claim(claim)
    again = await bench.limits.claim(claim)
    assert again.requests == Allowance(limit=5, remaining=4, reset_s=60)
    await refused(bench.limits, bench.claim(grants, requests=1, tokens=3))
    last = await bench.limits.claim(bench.claim(grants, requests=1, tokens=2))
    assert last.requests == Allowance(limit=5, remaining=3, reset_s=60)


async def test_long_prompts_hold_their_places_until_settled_or_until_the_lease_ends(
    bench: Bench,
) -> None:
    grants = Grants(long_prompts=2)
    claims = [bench.claim(grants, is_long=True, lease_s=60, tokens=1) for _ in range(3)]
    await bench.limits.claim(claims[0])
    await bench.limits.claim(claims[1])
    await bench.other.claim(bench.claim(grants, lease_s=60, tokens=1))  # a short one
    assert (await refused(bench.other, claims[2])).kind is Limit.LONG_PROMPTS
    await bench.limits.settle(claims[0], Used(tokens=1, micros=0, month_micros=0))
    await bench.other.claim(claims[2])
    bench.clock.now_s += 59
    await bench.limits.renew([claims[1]])
    bench.clock.now_s += 2  # whoever held the last claim is gone and renews it no more
    late = [bench.claim(grants, is_long=True, lease_s=60, tokens=1) for _ in range(2)]
    await bench.limits.claim(late[0])
    await refused(bench.limits, late[1])


async def test_a_budget_is_held_while_a_request_runs_and_spent_when_it_ends(bench: Bench) -> None:
    grants = Grants(monthly_budget_micros=1000)
    claim = bench.claim(grants, micros=700, lease_s=60)
    with pytest.raises(Unseeded):
        await bench.limits.claim(claim)
    await bench.limits.seed("key_1", MONTH, 100)
    await bench.other.seed("key_1", MONTH, 900)  # known already: changes nothing
    await bench.limits.claim(claim)
    error = await refused(bench.other, bench.claim(grants, micros=201, lease_s=60))
    assert (error.kind, error.used) == (Limit.BUDGET, 800)
    assert error.retry_after_s == 31 * 86_400
    await bench.limits.settle(claim, Used(tokens=0, micros=300, month_micros=400))
    await bench.limits.claim(bench.claim(grants, micros=600, lease_s=60))
    await refused(bench.limits, bench.claim(grants, micros=1, lease_s=60))


async def test_settling_a_free_request_does_not_make_the_month_known(bench: Bench) -> None:
    claim = bench.claim(Grants(tokens_per_min=9), tokens=3, lease_s=60)
    await bench.limits.claim(claim)
    await bench.limits.settle(claim, Used(tokens=3, micros=0, month_micros=0))
    with pytest.raises(Unseeded):
        await bench.limits.claim(bench.claim(Grants(monthly_budget_micros=5), micros=1, lease_s=9))


async def test_what_the_disk_says_was_spent_heals_a_counter_that_lost_some(bench: Bench) -> None:
    grants = Grants(monthly_budget_micros=1000)
    await bench.limits.seed("key_1", MONTH, 0)
    claim = bench.claim(grants, micros=10, lease_s=60)
    await bench.limits.claim(claim)
    await bench.limits.settle(claim, Used(tokens=0, micros=10, month_micros=990))
    await refused(bench.limits, bench.claim(grants, micros=11, lease_s=60))
    await bench.limits.claim(bench.claim(grants, micros=10, lease_s=60))


async def test_two_gateways_share_one_limit_to_the_token(bench: Bench) -> None:
    grants = Grants(tokens_per_min=10_000)
    sizes = [7 + 13 * (i % 11) for i in range(400)]
    taken = 0

    async def ask(limits: Limits, tokens: int) -> None:
        nonlocal taken
        claim = bench.claim(grants, tokens=tokens, lease_s=60)
        try:
            await limits.claim(claim)
        except LimitReached:
            return
        taken += tokens
        if tokens % 2:
            await limits.settle(claim, Used(tokens=tokens - 5, micros=0, month_micros=0))
            taken -= 5

    both = (bench.limits, bench.other)
    async with asyncio.TaskGroup() as group:
        for i, tokens in enumerate(sizes):
            group.create_task(ask(both[i % 2], tokens))
    assert 9_850 < taken <= 10_000
    left = 10_000 - taken
    error = await refused(bench.other, bench.claim(grants, tokens=left + 1))
    assert error.used == taken
    if left:
        await bench.limits.claim(bench.claim(grants, tokens=left))
