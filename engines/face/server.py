"""An engine behind HTTP, for gateways; knows the wire, not ranks and not OpenAI's format."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from math import ceil
from typing import Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from engines.api import (
    Engine,
    EngineBusy,
    EngineError,
    EngineLost,
    EngineRefused,
    EngineStatus,
    Event,
    GrammarRefused,
    PromptTooLong,
    RequestExpired,
)
from engines.face.wire import (
    MalformedWire,
    decode_request,
    encode_event,
    encode_failure,
    encode_info,
    encode_refusal,
    encode_tokenizer,
)

logger = logging.getLogger(__name__)

SSE: Final = "text/event-stream"

REFUSAL_WAIT_S = 0.05
"""An engine refuses at once. What it has not refused by then is answered 200, so that a client
sees headers long before the first event; if it fails all the same, the stream says so."""

STATUS: Mapping[type[EngineError], int] = {
    PromptTooLong: 400,
    EngineRefused: 400,
    GrammarRefused: 400,
    EngineBusy: 503,
    EngineLost: 503,
    RequestExpired: 504,
}


class EventStream(Response):
    """Sends events as they come; the generator is closed when the stream ends or the client left.

    A request that is refused before its first event is answered with the refusal's status.

    The server tells of a lost connection through `receive`, at once and without being polled.
    """

    def __init__(self, events: AsyncGenerator[Event, None]) -> None:
        super().__init__(media_type=SSE, headers={"cache-control": "no-store"})
        del self.headers["content-length"]
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with asyncio.TaskGroup() as tasks:
            sending = tasks.create_task(self._send_all(send))
            watching = tasks.create_task(_client_left(receive))
            await asyncio.wait((sending, watching), return_when=asyncio.FIRST_COMPLETED)
            sending.cancel()
            watching.cancel()

    async def _send_all(self, send: Send) -> None:
        async with aclosing(self._events) as events, _first_of(events) as first:
            await asyncio.wait((first,), timeout=REFUSAL_WAIT_S)
            error = first.exception() if first.done() else None
            if isinstance(error, EngineError):
                await _send_refusal(send, error)
                return
            await self._send_stream(send, first, events)

    async def _send_stream(
        self, send: Send, first: "asyncio.Task[Event]", events: AsyncGenerator[Event, None]
    ) -> None:
        await send(
            {
                "type": "http.response.start",
                "status": self.status_code,
                "headers": self.raw_headers,
            }
        )
        try:
            await _send_part(send, encode_event(await first))
            async for event in events:
                await _send_part(send, encode_event(event))
        except EngineError as error:
            await _send_part(send, encode_failure(error))
        except Exception:  # the request's edge: the client is waiting for an end
            logger.exception("request failed")
            await _send_part(send, encode_failure(EngineLost("the engine failed")))
        await send({"type": "http.response.body", "body": b"", "more_body": False})


@asynccontextmanager
async def _first_of(events: AsyncGenerator[Event, None]) -> AsyncIterator["asyncio.Task[Event]"]:
    """The first event as a task. It is over when the block is, so that `events` can be closed."""
    first = asyncio.ensure_future(_next(events))
    try:
        yield first
    finally:
        first.cancel()
        await asyncio.wait((first,))


async def _next(events: AsyncGenerator[Event, None]) -> Event:
    return await anext(events)


async def _send_refusal(send: Send, error: EngineError) -> None:
    headers = [(b"content-type", b"application/json")]
    if isinstance(error, EngineBusy):
        headers.append((b"retry-after", str(max(1, ceil(error.retry_after_s))).encode()))
    status = STATUS.get(type(error), 503)
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": encode_refusal(error), "more_body": False})


async def _send_part(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})


async def _client_left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def create_face(engine: Engine, clock: Callable[[], float] = time.monotonic) -> Starlette:
    """The engine's HTTP application. It does not start or stop the engine."""

    async def generate(request: Request) -> Response:
        try:
            generation = decode_request(await request.body(), clock())
            traceparent = request.headers.get("traceparent", "")
            generation = replace(generation, traceparent=traceparent)
        except MalformedWire as error:
            refusal = encode_refusal(EngineRefused(str(error)))
            return Response(refusal, status_code=400, media_type="application/json")
        return EventStream(engine.generate(generation))

    async def info(_: Request) -> Response:
        return Response(encode_info(await engine.info()), media_type="application/json")

    async def tokenizer(_: Request) -> Response:
        files = await engine.tokenizer()
        return Response(encode_tokenizer(files), media_type="application/msgpack")

    async def live(_: Request) -> Response:
        return JSONResponse({"status": "live"})

    async def ready(_: Request) -> Response:
        status = (await engine.info()).status
        is_ready = status is EngineStatus.READY
        return JSONResponse({"status": status.value}, status_code=200 if is_ready else 503)

    return Starlette(
        routes=[
            Route("/v1/generate", generate, methods=["POST"]),
            Route("/v1/engine", info),
            Route("/v1/tokenizer", tokenizer),
            Route("/health/live", live),
            Route("/health/ready", ready),
        ]
    )
