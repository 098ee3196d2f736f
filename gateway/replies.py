"""Answers to HTTP: one JSON body, or a stream of events. Knows ASGI; nothing of routes.

Until the first byte an error is raised, and becomes a status; after it, it is a frame.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, aclosing
from dataclasses import dataclass

import msgspec
from starlette.datastructures import MutableHeaders
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gateway import sse
from gateway.answers import AnswerEvent
from gateway.api import ClientLeft
from gateway.errors import error_body, error_headers, fault_for
from gateway.speech import Speech
from gateway.together import beside, while_connected, within


def json_response(
    body: object, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    return Response(
        msgspec.json.encode(body),
        status_code=status,
        headers=dict(headers or {}),
        media_type="application/json",
    )


def error_response(error: Exception) -> Response:
    return json_response(
        error_body(error), status=fault_for(error).status, headers=error_headers(error)
    )


class _Frames:
    """Bytes to the client; the first ones start the response."""

    def __init__(self, send: Send, headers: MutableHeaders) -> None:
        self._send = send
        self.headers = headers
        self.started = False
        self.failure: Callable[[Exception], Iterator[bytes]] = _error_frame
        """How an error is said from now on; a planned answer says it in its own format."""
        self.written_at = asyncio.get_running_loop().time()

    async def write(self, frame: bytes) -> None:
        if not self.started:
            self.started = True
            await self._send(
                {"type": "http.response.start", "status": 200, "headers": self.headers.raw}
            )
        self.written_at = asyncio.get_running_loop().time()
        await self._send({"type": "http.response.body", "body": frame, "more_body": True})

    async def end(self) -> None:
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})


def _error_frame(error: Exception) -> Iterator[bytes]:
    yield sse.data(error_body(error))


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """A planned answer: its headers, its events and how to spell them."""

    headers: Mapping[str, str]
    events: AsyncGenerator[AnswerEvent, None]
    speech: Speech


class EventStream(Response):
    """Streams an answer as server-sent events.

    The status line waits for the engine's first event or for the first keep-alive, whichever
    comes first. A client that leaves closes the events. `conclusion` is entered around it all and
    sees the error also when the client gets it as a frame.
    """

    def __init__(
        self,
        begin: Callable[[], Awaitable[Begun]],
        *,
        conclusion: AbstractContextManager[object],
        keep_alive_s: float,
        limit_s: float,
    ) -> None:
        super().__init__(
            headers={
                "content-type": "text/event-stream; charset=utf-8",
                "cache-control": "no-cache",
                "x-accel-buffering": "no",
            }
        )
        del self.headers["content-length"]
        self._begin = begin
        self._conclusion = conclusion
        self._keep_alive_s = keep_alive_s
        self._limit_s = limit_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        frames = _Frames(send, self.headers)
        try:
            with self._conclusion:
                await while_connected(receive, within(self._limit_s, self._send_all(frames)))
        except ClientLeft:
            if not frames.started:
                raise
            return
        except Exception as error:
            if not frames.started:
                raise
            for frame in frames.failure(error):
                await frames.write(frame)
        await frames.end()

    async def _send_all(self, frames: _Frames) -> None:
        async with beside(self._keep_alive(frames)):
            begun = await self._begin()
            frames.headers.update(begun.headers)
            frames.failure = begun.speech.failure
            async with aclosing(begun.events) as events:
                async for event in events:
                    for frame in begun.speech.frames(event):
                        await frames.write(frame)

    async def _keep_alive(self, frames: _Frames) -> None:
        loop = asyncio.get_running_loop()
        while True:
            silence_s = loop.time() - frames.written_at
            if silence_s >= self._keep_alive_s:
                await frames.write(sse.comment("keep-alive"))
                silence_s = 0.0
            await asyncio.sleep(self._keep_alive_s - silence_s)
