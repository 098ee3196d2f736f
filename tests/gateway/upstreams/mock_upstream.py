"""A scripted HTTP server on a real socket, which tells what it was asked and who left early."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Asked:
    path: str
    headers: dict[str, str]
    raw: bytes

    @property
    def body(self) -> dict[str, object]:
        body: dict[str, object] = json.loads(self.raw)
        return body


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """`steps` are bytes to send and seconds to wait. Without `ends` the connection breaks off."""

    status: int = 200
    steps: Sequence[bytes | float] = ()
    headers: Sequence[tuple[str, str]] = (("content-type", "text/event-stream"),)
    before_s: float = 0.0
    ends: bool = True


Script = Callable[[Asked], Reply]


@dataclass(slots=True)
class MockUpstream:
    script: Script
    port: int = 0
    asked: list[Asked] = field(default_factory=list)
    num_connections: int = 0
    aborted_at: list[float] = field(default_factory=list)
    """When clients left whose answers were not finished, by the loop's clock."""
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.num_connections += 1
        self.writers.append(writer)
        try:
            while True:
                asked = await _asked(reader)
                self.asked.append(asked)
                leaving = asyncio.ensure_future(reader.read(1))
                is_done = await self._answer(writer, self.script(asked), leaving)
                if not is_done:
                    return
                leaving.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await leaving
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(
        self, writer: asyncio.StreamWriter, reply: Reply, leaving: "asyncio.Future[bytes]"
    ) -> bool:
        head = [f"HTTP/1.1 {reply.status} Said", "transfer-encoding: chunked"]
        head += [f"{name}: {value}" for name, value in reply.headers]
        start = ("\r\n".join(head) + "\r\n\r\n").encode()
        for step in [reply.before_s, start, *reply.steps]:
            if isinstance(step, float | int):
                done, _ = await asyncio.wait({leaving}, timeout=step)
                if done:
                    self.aborted_at.append(asyncio.get_running_loop().time())
                    return False
            else:
                writer.write(step if step is start else b"%x\r\n%b\r\n" % (len(step), step))
        if not reply.ends:
            return False
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True


async def _asked(reader: asyncio.StreamReader) -> Asked:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    first, *lines = head.strip().split("\r\n")
    headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in lines)}
    raw = await reader.readexactly(int(headers.get("content-length", "0")))
    return Asked(first.split(" ")[1], headers, raw)


@asynccontextmanager
async def mock(script: Script) -> AsyncIterator[MockUpstream]:
    upstream = MockUpstream(script)
    server = await asyncio.start_server(upstream.serve, "127.0.0.1", 0)
    upstream.port = server.sockets[0].getsockname()[1]
    try:
        yield upstream
    finally:
        server.close()
        for writer in upstream.writers:
            writer.close()
        closing = (writer.wait_closed() for writer in upstream.writers)
        await asyncio.gather(*closing, return_exceptions=True)


def sse(*payloads: object) -> list[bytes | float]:
    return [
        b"data: %b\n\n" % (one if isinstance(one, bytes) else json.dumps(one).encode())
        for one in payloads
    ]


def delta(text: str, **choice: object) -> dict[str, object]:
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None, **choice}]}


def finish(reason: str = "stop", index: int = 0) -> dict[str, object]:
    return {"choices": [{"index": index, "delta": {}, "finish_reason": reason}]}


USAGE: dict[str, object] = {
    "choices": [],
    "usage": {
        "prompt_tokens": 10,
        "completion_tokens": 2,
        "total_tokens": 12,
        "prompt_tokens_details": {"cached_tokens": 4},
    },
}


def said(*texts: str) -> Reply:
    """A whole answer of OpenAI's chat API."""
    return Reply(steps=sse(*(delta(text) for text in texts), finish(), USAGE, b"[DONE]"))


def refused(status: int, message: str, *headers: tuple[str, str]) -> Reply:
    body = json.dumps({"error": {"message": message, "type": "x", "code": None}}).encode()
    return Reply(
        status=status, steps=[body], headers=[("content-type", "application/json"), *headers]
    )
