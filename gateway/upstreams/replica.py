"""One of several servers of a model, with what is known of it: breaker, pace, work it has.

Keeps the deadlines of a request it serves; chooses nothing.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field

from engines.api import (
    EngineBusy,
    EngineError,
    EngineLoad,
    EngineLost,
    EngineRefused,
    Event,
    FinishEvent,
    GenerateRequest,
    ProgressEvent,
    PromptTooLong,
    RequestExpired,
)
from gateway.upstreams.breaker import Breaker
from gateway.upstreams.pace import Pace
from gateway.upstreams.refusals import Overloaded
from gateway.upstreams.server import Server

logger = logging.getLogger(__name__)

MOST_S_PER_TOKEN = 1.0
"""Slower than this an answer is given up: the total deadline is the first byte's and this."""

LEAST_SILENCE_S = 60.0
"""How long an answer that has begun may stand still; the first byte's deadline if that is more."""


class FirstByteLate(RequestExpired):
    """The server's fault: it was silent for several times what its prefills take."""


@dataclass(slots=True)
class Replica:
    name: str
    server: Server
    clock: Callable[[], float]
    breaker: Breaker = field(default_factory=Breaker)
    pace: Pace = field(default_factory=Pace)
    waiting: dict[int, int] = field(default_factory=dict)
    """Prompt tokens still to be read, by request in flight."""
    num_running: int = 0
    _next: int = 0

    @property
    def waiting_tokens(self) -> int:
        return sum(self.waiting.values())

    @property
    def load(self) -> EngineLoad:
        reading = len(self.waiting)
        return EngineLoad(
            running=self.num_running - reading,
            queued=reading,
            queued_prefill_tokens=self.waiting_tokens,
        )

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Event, None]:
        """Raises what the server raises; FirstByteLate and RequestExpired by its pace."""
        self.breaker.begin(self.clock())
        with self._judged(), self._booked(len(request.prompt_ids)) as ticket:
            watch = _Watch(self, request, ticket)
            async with aclosing(self.server.generate(request)) as events:
                while True:
                    try:
                        async with asyncio.timeout(watch.patience_s()):
                            event = await anext(events)
                    except StopAsyncIteration:
                        return
                    except TimeoutError:
                        raise watch.late() from None
                    watch.saw(event)
                    yield event

    @contextmanager
    def _booked(self, num_tokens: int) -> Iterator[int]:
        ticket, self._next = self._next, self._next + 1
        self.waiting[ticket] = num_tokens
        self.num_running += 1
        try:
            yield ticket
        finally:
            self.waiting.pop(ticket, None)
            self.num_running -= 1

    @contextmanager
    def _judged(self) -> Iterator[None]:
        """What the outcome says of the server."""
        breaker = self.breaker
        try:
            yield
        except EngineBusy as error:
            breaker.succeeded()
            if isinstance(error, Overloaded):
                breaker.pause(self.clock() + error.retry_after_s)
            raise
        except (EngineRefused, PromptTooLong):
            breaker.succeeded()
            raise
        except (EngineLost, FirstByteLate) as error:
            breaker.failed(self.clock())
            logger.warning(
                "upstream failed",
                extra={
                    "replica": self.name,
                    "error": str(error),
                    "circuit": breaker.circuit(self.clock()).value,
                },
            )
            raise
        except (EngineError, GeneratorExit, asyncio.CancelledError):
            breaker.abandoned()
            raise
        except BaseException:
            breaker.failed(self.clock())
            raise
        breaker.succeeded()


class _Watch:
    """Time and progress of one request at one replica."""

    def __init__(self, replica: Replica, request: GenerateRequest, ticket: int) -> None:
        self._replica = replica
        self._request = request
        self._ticket = ticket
        self._was_idle = len(replica.waiting) == 1
        self._started_s = replica.clock()
        self._first_limit_s = replica.pace.deadline_s(replica.waiting_tokens)
        self._first_s: float | None = None
        answer_s = request.max_new_tokens * MOST_S_PER_TOKEN
        self._end_by_s = min(request.deadline_s, self._started_s + self._first_limit_s + answer_s)

    def patience_s(self) -> float:
        """Seconds to wait for the next event."""
        now_s = self._replica.clock()
        if self._first_s is None:
            limit_s = self._started_s + self._first_limit_s - now_s
        else:
            limit_s = max(LEAST_SILENCE_S, self._first_limit_s)
        return min(limit_s, self._end_by_s - now_s)

    def late(self) -> RequestExpired:
        waited_s = self._replica.clock() - self._started_s
        if self._end_by_s - self._replica.clock() <= 0:
            return RequestExpired(f"the answer was not finished within {waited_s:.1f} s")
        if self._first_s is not None:
            return FirstByteLate("the upstream stood still in the middle of its answer")
        num = len(self._request.prompt_ids)
        return FirstByteLate(
            f"the upstream said nothing for {waited_s:.1f} s; by its pace it reads {num} tokens in "
            f"{self._replica.pace.estimate_s(num):.1f} s"
        )

    def saw(self, event: Event) -> None:
        if isinstance(event, ProgressEvent):
            self._replica.waiting[self._ticket] = event.total_tokens - event.done_tokens
        elif self._first_s is None:
            self._first_s = self._replica.clock()
            self._replica.waiting.pop(self._ticket, None)
        if isinstance(event, FinishEvent) and self._first_s is not None and self._was_idle:
            # A queue before it or a warm cache would teach a wrong pace.
            num_read = event.prompt_tokens - event.cached_tokens
            self._replica.pace.observe(num_read, self._first_s - self._started_s)
