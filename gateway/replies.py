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
from gateway.answers import Answered, AnswerEvent, Facts, Opened, Progress, Said
from gateway.api import ClientLeft
from gateway.errors import error_body, error_headers, fault_for
from gateway.openai.answers import ChatCompletion, ChunkWriter, Signature
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


async def collect(
    events: AsyncGenerator[AnswerEvent, None], signature: Signature
) -> ChatCompletion:
    """The whole answer. Raises what `events` raise."""
    said: list[Said] = []
    async with aclosing(events):
        async for event in events:
            if isinstance(event, Said):
                said.append(event)
            if isinstance(event, Answered):
                return signature.completion(said, event)
    raise AssertionError("an answer ends with Answered")


class _Frames:
    """Bytes to the client; the first ones start the response."""

    def __init__(self, send: Send, headers: MutableHeaders) -> None:
        self._send = send
        self.headers = headers
        self.started = False
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


class _Speech:
    """Events of one answer to frames: progress as comments, the rest as OpenAI's chunks."""

    def __init__(self, writer: ChunkWriter) -> None:
        self._writer = writer
        self._facts: Facts | None = None
        self._has_begun = False
        self._percent = -1

    def frames(self, event: AnswerEvent) -> Iterator[bytes]:
        match event:
            case Opened():
                self._facts = event.facts
            case Progress():
                yield from self._progress(event)
            case Said():
                yield from self._begin()
                yield sse.data(self._writer.said(event))
            case Answered():
                yield from self._begin()
                for chunk in self._writer.last(event):
                    yield sse.data(chunk)
                yield sse.DONE

    def _begin(self) -> Iterator[bytes]:
        if not self._has_begun:
            assert self._facts is not None, "Opened comes before text"
            self._has_begun = True
            yield sse.data(self._writer.first(self._facts))

    def _progress(self, event: Progress) -> Iterator[bytes]:
        percent = 100 * event.done_tokens // max(1, event.total_tokens)
        if percent != self._percent:
            self._percent = percent
            yield sse.comment(f"prefill {percent} % of {event.total_tokens} tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """A planned answer: its headers, its events and how to spell them."""

    headers: Mapping[str, str]
    events: AsyncGenerator[AnswerEvent, None]
    writer: ChunkWriter


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
            raise
        except Exception as error:
            if not frames.started:
                raise
            await frames.write(sse.data(error_body(error)))
        await frames.end()

    async def _send_all(self, frames: _Frames) -> None:
        async with beside(self._keep_alive(frames)):
            begun = await self._begin()
            frames.headers.update(begun.headers)
            speech = _Speech(begun.writer)
            async with aclosing(begun.events) as events:
                async for event in events:
                    for frame in speech.frames(event):
                        await frames.write(frame)

    async def _keep_alive(self, frames: _Frames) -> None:
        loop = asyncio.get_running_loop()
        while True:
            silence_s = loop.time() - frames.written_at
            if silence_s >= self._keep_alive_s:
                await frames.write(sse.comment("keep-alive"))
                silence_s = 0.0
            await asyncio.sleep(self._keep_alive_s - silence_s)
