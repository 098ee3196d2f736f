"""The replicas of one model as one Engine: which one reads a prompt, and what is tried again.

Knows no wire. A request is tried again only before its first event, and only when nothing of it
was worked on or the server asked to come back.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from random import Random
from typing import Protocol

from engines.api import (
    EngineBusy,
    EngineError,
    EngineInfo,
    EngineLoad,
    EngineLost,
    EngineStatus,
    Event,
    GenerateRequest,
    RequestExpired,
    TokenizerFiles,
)
from gateway.upstreams.balance import affinity, choose
from gateway.upstreams.refusals import Unreached
from gateway.upstreams.replica import Replica


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrySettings:
    """`tries` in all. With no other replica left, up to `patience_s` is waited for one."""

    tries: int = 3
    patience_s: float = 5.0
    least_wait_s: float = 0.05

    def __post_init__(self) -> None:
        if self.tries < 1 or not 0 <= self.least_wait_s <= self.patience_s:
            raise ValueError("retries: tries >= 1 and 0 <= least_wait_s <= patience_s must hold")


class About(Protocol):
    """What a model says of itself, wherever that comes from."""

    async def info(self) -> EngineInfo: ...

    async def tokenizer(self) -> TokenizerFiles: ...


class Fleet:
    def __init__(
        self,
        replicas: Sequence[Replica],
        about: About,
        *,
        retries: RetrySettings | None = None,
        clock: Callable[[], float] = time.monotonic,
        rng: Random | None = None,
    ) -> None:
        self.replicas = tuple(replicas)
        self._replicas = {replica.name: replica for replica in replicas}
        assert len(self._replicas) == len(replicas) > 0, "replicas have names of their own"
        self._about = about
        self._retries = retries or RetrySettings()
        self._clock = clock
        self._rng = rng or Random()

    async def info(self) -> EngineInfo:
        """DEGRADED while no replica may be asked."""
        info = await self._about.info()
        now_s = self._clock()
        loads = [replica.load for replica in self._replicas.values()]
        is_up = any(replica.breaker.allows(now_s) for replica in self._replicas.values())
        return replace(
            info,
            status=info.status if is_up else EngineStatus.DEGRADED,
            load=EngineLoad(
                running=sum(load.running for load in loads),
                queued=sum(load.queued for load in loads),
                queued_prefill_tokens=sum(load.queued_prefill_tokens for load in loads),
            ),
        )

    async def tokenizer(self) -> TokenizerFiles:
        return await self._about.tokenizer()

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Event, None]:
        tried: list[str] = []
        while True:
            replica = await self._choose(request, tried)
            tried.append(replica.name)
            has_begun = False
            try:
                async with aclosing(replica.generate(request)) as events:
                    async for event in events:
                        has_begun = True
                        yield event
                return
            except (Unreached, EngineBusy) as error:
                if has_begun or len(tried) >= self._retries.tries:
                    raise _as_told(error) from error

    async def _choose(self, request: GenerateRequest, tried: Sequence[str]) -> Replica:
        """One that was not tried if there is one; else the first to be ready. Raises EngineBusy."""
        now_s = self._clock()
        ready = [one for one in self._replicas.values() if one.breaker.allows(now_s)]
        fresh = [one for one in ready if one.name not in tried]
        if not fresh and tried:
            await self._wait(request, tried)
            now_s = self._clock()
            ready = [one for one in self._replicas.values() if one.breaker.allows(now_s)]
        candidates = fresh or ready
        if not candidates:
            raise self._all_away(now_s)
        waiting = {one.name: one.waiting_tokens for one in candidates}
        tie = affinity(request.request_id, request.cache_key, request.prompt_ids)
        return self._replicas[choose(waiting, tie)]

    async def _wait(self, request: GenerateRequest, tried: Sequence[str]) -> None:
        """Until a replica may be asked again, and a little longer every time."""
        now_s = self._clock()
        back_s = min(one.breaker.ready_at(now_s) for one in self._replicas.values()) - now_s
        pause_s = self._retries.least_wait_s * 2 ** (len(tried) - 1) * (1 + self._rng.random())
        wait_s = max(back_s, pause_s)
        if back_s > self._retries.patience_s or wait_s > self._retries.patience_s:
            raise self._all_away(now_s)
        if now_s + wait_s > request.deadline_s:
            raise RequestExpired("no replica became ready before the request's deadline")
        await asyncio.sleep(wait_s)

    def _all_away(self, now_s: float) -> EngineBusy:
        ready_s = min(one.breaker.ready_at(now_s) for one in self._replicas.values())
        queued = sum(one.load.queued for one in self._replicas.values())
        return EngineBusy(queued=queued, retry_after_s=max(ready_s - now_s, 1.0))


def _as_told(error: EngineError) -> EngineError:
    """Retries are over: what the caller shall hear."""
    return EngineLost(str(error)) if isinstance(error, Unreached) else error
