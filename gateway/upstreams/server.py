"""One server behind HTTP, asked once per request in its dialect; knows no other servers.

What breaks becomes an engine error here. Closing a request closes its connection, which is how
a server learns of the abort.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Protocol

import httpx

from engines.api import EngineLost, Event, FinishEvent, GenerateRequest
from engines.face.client import RemoteEngine
from gateway.upstreams.dialect import Dialect, Ending
from gateway.upstreams.events import EventTooLong, data_of
from gateway.upstreams.http import Broken, NotConnected, Pool, Response
from gateway.upstreams.refusals import Unreached, error_in_stream, refusal

logger = logging.getLogger(__name__)

DRAIN_S = 0.25
"""What a server gets to end a stream whose last event came, so that its connection is kept."""

MAX_ERROR_BYTES = 65_536

DONE = b"[DONE]"
NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
"""How the gang's own client says that nothing was sent."""


class Server(Protocol):
    def generate(self, request: GenerateRequest) -> AsyncGenerator[Event, None]:
        """As `Engine.generate`; and Unreached when nothing of the request was worked on."""
        ...


class HttpServer:
    """`pool` is the owner's; it holds the credentials. Whoever reads the events keeps the time:
    how long a prefill may be silent is known there."""

    def __init__(
        self,
        *,
        model: str,
        dialect: Dialect,
        pool: Pool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._model = model
        self._dialect = dialect
        self._pool = pool
        self._clock = clock

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Event, None]:
        started_s = self._clock()
        first_s: float | None = None
        body = await self._body(request)
        reader = self._dialect.reader(request)
        num_events = 0
        async with (
            self._posting(request, body) as response,
            aclosing(data_of(response.chunks())) as frames,
        ):
            async for data in frames:
                if data == DONE:
                    break
                for event in reader.read(data):
                    first_s = first_s or self._clock()
                    num_events += 1
                    yield event
            await _drained(frames)
        ending = reader.ending()
        if ending is None:
            raise EngineLost("the upstream ended its stream before the answer was finished")
        now_s = self._clock()
        yield _finish(
            ending, request, num_events, (first_s or now_s) - started_s, now_s - started_s
        )

    async def _body(self, request: GenerateRequest) -> bytes:
        if len(request.prompt_ids) <= self._dialect.inline_tokens:
            return self._dialect.body(request, self._model)
        return await asyncio.to_thread(self._dialect.body, request, self._model)

    @asynccontextmanager
    async def _posting(self, request: GenerateRequest, body: bytes) -> AsyncIterator[Response]:
        headers = {"x-request-id": request.request_id}
        if request.traceparent:
            headers["traceparent"] = request.traceparent
        try:
            async with self._pool.post(self._dialect.path, body, headers) as response:
                await _refuse(response, len(request.prompt_ids))
                yield response
        except NotConnected as error:
            raise Unreached(f"the upstream cannot be reached: {error}") from error
        except Broken as error:
            raise EngineLost(f"the connection to the upstream failed: {error}") from error
        except EventTooLong as error:
            raise EngineLost("the upstream sent an event without end") from error


class GangServer:
    """A gang of ranks behind its own face."""

    def __init__(self, engine: RemoteEngine) -> None:
        self.engine = engine

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Event, None]:
        try:
            async with aclosing(self.engine.generate(request)) as events:
                async for event in events:
                    yield event
        except EngineLost as error:
            if isinstance(error.__cause__, NOT_SENT):
                raise Unreached(str(error)) from error
            raise


async def _drained(frames: AsyncGenerator[bytes, None]) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(DRAIN_S):
            async for _ in frames:
                pass


async def _refuse(response: Response, num_tokens: int) -> None:
    """Raises unless a stream of events begins; some servers say errors with status 200."""
    if response.status != httpx.codes.OK:
        body = await _beginning(response)
        raise refusal(
            response.status,
            response.headers,
            body,
            num_tokens=num_tokens,
            now_unix_s=time.time(),
        )
    if response.headers.get("content-type", "").startswith("application/json"):
        told = error_in_stream(await _beginning(response), num_tokens=num_tokens)
        raise told or EngineLost("the upstream answered a stream's request with a JSON body")


async def _beginning(response: Response) -> bytes:
    body = b""
    async for chunk in response.chunks():
        body += chunk
        if len(body) >= MAX_ERROR_BYTES:
            break
    return body


def _finish(
    ending: Ending, request: GenerateRequest, num_events: int, prefill_s: float, total_s: float
) -> FinishEvent:
    if ending.prompt_tokens is None or ending.completion_tokens is None:
        logger.warning("the upstream told no usage; prompt and pieces are counted here")
    prompt, completion = ending.prompt_tokens, ending.completion_tokens
    return FinishEvent(
        reason=ending.reason,
        prompt_tokens=len(request.prompt_ids) if prompt is None else prompt,
        cached_tokens=ending.cached_tokens,
        completion_tokens=num_events if completion is None else completion,
        queue_s=0.0,
        prefill_s=prefill_s,
        decode_s=total_s - prefill_s,
        reasoning_tokens=ending.reasoning_tokens,
    )
