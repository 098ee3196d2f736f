"""An engine behind HTTP, for gateways; knows the wire, not ranks and not OpenAI's format."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from engines.api import Engine, EngineError, EngineLost, EngineStatus, Event
from engines.face.wire import (
    MalformedWire,
    decode_request,
    encode_event,
    encode_failure,
    encode_info,
    encode_tokenizer,
)

logger = logging.getLogger(__name__)

SSE: Final = "text/event-stream"


class EventStream(Response):
    """Sends events as they come; the generator is closed when the stream ends or the client left.

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
        async with aclosing(self._events) as events:
            await send(
                {
                    "type": "http.response.start",
                    "status": self.status_code,
                    "headers": self.raw_headers,
                }
            )
            try:
                async for event in events:
                    await _send_part(send, encode_event(event))
            except EngineError as error:
                await _send_part(send, encode_failure(error))
            except Exception:  # the request's edge: the client is waiting for an end
                logger.exception("request failed")
                await _send_part(send, encode_failure(EngineLost("the engine failed")))
        await send({"type": "http.response.body", "body": b"", "more_body": False})


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
        except MalformedWire as error:
            return JSONResponse({"error": str(error)}, status_code=400)
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
