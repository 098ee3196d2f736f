"""`Limits` in Redis or Valkey, shared by every gateway that is given the same one.

The only module that imports `redis`. Knows no key's meaning.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import cast

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from gateway.tenancy.api import (
    WINDOW_S,
    Claim,
    Grants,
    Limit,
    LimitReached,
    LimitsDown,
    Standing,
    Unseeded,
    Used,
)
from gateway.tenancy.lua import CLAIM, RENEW, SETTLE
from gateway.tenancy.memory_limits import LONG_PROMPT_RETRY_S
from gateway.tenancy.standing import standing_of, until_next_month_s

ANSWER_WITHIN_S = 1.0
MOST_CONNECTIONS = 32
FREE_WITHIN_S = 5.0
"""How long a script may wait for one of them: a burst is no outage."""

KINDS = (Limit.REQUESTS, Limit.TOKENS, Limit.LONG_PROMPTS, Limit.BUDGET)


class RedisLimits:
    """`clock` is Unix seconds; None asks Redis for the time, so that gateways need not agree."""

    def __init__(self, client: Redis, *, clock: Callable[[], float] | None = None) -> None:
        self._client = client
        self._clock = clock
        self._claim = client.register_script(CLAIM)
        self._settle = client.register_script(SETTLE)
        self._renew = client.register_script(RENEW)

    @classmethod
    def connect(cls, url: str, *, clock: Callable[[], float] | None = None) -> "RedisLimits":
        """Opens no connection yet. Raises ValueError for a URL of another kind."""
        pool = BlockingConnectionPool.from_url(
            url,
            max_connections=MOST_CONNECTIONS,
            timeout=FREE_WITHIN_S,
            decode_responses=True,
            socket_timeout=ANSWER_WITHIN_S,
            socket_connect_timeout=ANSWER_WITHIN_S,
            # Each script changes nothing when it is run twice, so a lost connection is tried again.
            retry=Retry(NoBackoff(), 1),
        )
        return cls(Redis.from_pool(pool), clock=clock)

    async def claim(self, claim: Claim) -> Standing:
        grants = claim.grants
        caps = (
            grants.requests_per_min,
            grants.tokens_per_min,
            grants.long_prompts,
            grants.monthly_budget_micros,
        )
        arguments: list[str | int] = [claim.id, claim.month, claim.requests, claim.tokens]
        arguments += [int(claim.is_long), claim.micros, round(claim.lease_s * 1000)]
        arguments += [-1 if cap is None else cap for cap in caps]
        told = await self._run(self._claim, claim, arguments)
        if told[0] == "unseeded":
            raise Unseeded
        if told[0] == "over":
            raise _refusal(claim, caps, told)
        return _standing(grants, told)

    async def seed(self, key_id: str, month: str, micros: int) -> None:
        try:
            await self._client.set(_keys(key_id, month)[-1], micros, nx=True)
        except (RedisError, OSError) as error:
            raise LimitsDown(f"Redis does not answer: {error}") from error

    async def settle(self, claim: Claim, used: Used) -> Standing:
        told = await self._run(
            self._settle,
            claim,
            [claim.id, claim.tokens, used.tokens, used.micros, used.month_micros],
        )
        return _standing(claim.grants, told)

    async def renew(self, claims: Sequence[Claim]) -> None:
        def place(one: Claim) -> tuple[str, str, float]:
            return one.key_id, one.month, one.lease_s

        for _, group in groupby(sorted(claims, key=place), key=place):
            alike = list(group)
            lease_ms = round(alike[0].lease_s * 1000)
            await self._run(self._renew, alike[0], [lease_ms, *(one.id for one in alike)])

    async def aclose(self) -> None:
        await self._client.aclose()

    async def _run(
        self, script: Callable[..., object], claim: Claim, arguments: Sequence[str | int]
    ) -> Sequence[str | int]:
        now_ms = -1 if self._clock is None else round(self._clock() * 1000)
        try:
            answer = script(
                keys=_keys(claim.key_id, claim.month),
                args=[now_ms, WINDOW_S * 1000, *arguments],
            )
            return cast(Sequence[str | int], await answer)  # type: ignore[misc]
        except (RedisError, OSError) as error:
            raise LimitsDown(f"Redis does not answer: {error}") from error


def _keys(key_id: str, month: str) -> list[str]:
    names = ("window", "amounts", "sums", "leases", "holds", f"spent:{month}")
    return [f"ringway:{{{key_id}}}:{name}" for name in names]


def _refusal(claim: Claim, caps: Sequence[int | None], told: Sequence[str | int]) -> LimitReached:
    place = int(told[1]) - 1
    kind = KINDS[place]
    wanted: Mapping[Limit, int] = {
        Limit.REQUESTS: claim.requests,
        Limit.TOKENS: claim.tokens,
        Limit.LONG_PROMPTS: int(claim.is_long),
        Limit.BUDGET: claim.micros,
    }
    wait_s = int(told[3]) / 1000
    if kind is Limit.LONG_PROMPTS:
        wait_s = LONG_PROMPT_RETRY_S
    elif kind is Limit.BUDGET:
        wait_s = until_next_month_s(int(told[4]) / 1000)
    cap = caps[place]
    assert cap is not None, "only a limit that is set can be reached"
    return LimitReached(
        kind=kind, wanted=wanted[kind], used=int(told[2]), limit=cap, retry_after_s=wait_s
    )


def _standing(grants: Grants, told: Sequence[str | int]) -> Standing:
    return standing_of(grants, int(told[1]), int(told[2]), reset_s=int(told[3]) / 1000)
