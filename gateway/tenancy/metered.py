"""Counts what an engine reads and writes for one request, also when it ends half-way.

Knows no limits: whoever holds the meter decides what its counts mean.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from time import perf_counter

from engines.api import (
    Engine,
    EngineInfo,
    Event,
    FinishEvent,
    GenerateRequest,
    ProgressEvent,
    TextEvent,
    TokenEvent,
    TokenizerFiles,
    ToolCallEvent,
)
from gateway.answers import Usage
from gateway.api import Route


@dataclass(slots=True)
class Call:
    """One `generate`: exact once it finished, and what was seen until then. An engine that speaks
    text tells no tokens; each of its pieces counts as one until it finishes."""

    prompt_tokens: int
    read: int = 0
    written: int = 0
    finish: FinishEvent | None = None
    began_s: float = field(default_factory=perf_counter)
    ended_s: float | None = None

    @property
    def seconds(self) -> float:
        return (perf_counter() if self.ended_s is None else self.ended_s) - self.began_s

    def see(self, event: Event) -> None:
        match event:
            case ProgressEvent():
                self.read = max(self.read, event.done_tokens)
            case TokenEvent() | TextEvent() | ToolCallEvent():
                self.read = self.prompt_tokens
                self.written += 1
            case FinishEvent():
                self.finish = event

    @property
    def usage(self) -> Usage:
        end = self.finish
        if end is None:
            return Usage(
                prompt_tokens=min(self.read, self.prompt_tokens),
                cached_tokens=0,
                completion_tokens=self.written,
            )
        return Usage(
            prompt_tokens=end.prompt_tokens,
            cached_tokens=min(end.cached_tokens, end.prompt_tokens),
            completion_tokens=end.completion_tokens,
        )


async def _nothing() -> None:
    return None


@dataclass(slots=True)
class Meter:
    """`route` is the one that answers, as far as known. `on_end` is awaited exactly once."""

    route: Route | None = None
    calls: list[Call] = field(default_factory=list)
    on_end: Callable[[], Awaitable[None]] = _nothing
    has_ended: bool = False

    @property
    def usage(self) -> Usage:
        parts = [call.usage for call in self.calls]
        return Usage(
            prompt_tokens=sum(one.prompt_tokens for one in parts),
            cached_tokens=sum(one.cached_tokens for one in parts),
            completion_tokens=sum(one.completion_tokens for one in parts),
        )

    def metered(self, engine: Engine) -> Engine:
        return MeteredEngine(engine, self)

    async def end(self) -> None:
        """The request is over, or about to say so. Only the first call does anything."""
        if not self.has_ended:
            self.has_ended = True
            await self.on_end()


class MeteredEngine:
    def __init__(self, engine: Engine, meter: Meter) -> None:
        self._engine = engine
        self._meter = meter

    async def info(self) -> EngineInfo:
        return await self._engine.info()

    async def tokenizer(self) -> TokenizerFiles:
        return await self._engine.tokenizer()

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Event, None]:
        call = Call(len(request.prompt_ids))
        self._meter.calls.append(call)
        try:
            async with aclosing(self._engine.generate(request)) as events:
                async for event in events:
                    call.see(event)
                    yield event
        finally:
            call.ended_s = perf_counter()
