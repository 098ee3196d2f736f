"""Closed-loop HTTP load over kept connections, spending as little as it can on its own side."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from statistics import median

LETTERS = bytes.maketrans(b"0123456789", b"aeioulnrst")

Body = Callable[[], bytes]
"""Gives the next request's body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where a gateway takes chats. `headers` are full lines."""

    name: str
    port: int
    headers: tuple[str, ...] = ()
    path: str = "/v1/chat/completions"

    def request(self, body: bytes) -> bytes:
        lines = [
            f"POST {self.path} HTTP/1.1",
            "host: 127.0.0.1",
            "content-type: application/json",
            *self.headers,
            f"content-length: {len(body)}",
        ]
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@dataclass(frozen=True, slots=True)
class Load:
    rps: float
    p50_ms: float
    p99_ms: float
    num_failed: int


async def drive(target: Target, bodies: Body, *, concurrency: int, seconds: float) -> Load:
    """Requests one after the other on each of `concurrency` connections, for `seconds`."""
    latencies: list[float] = []
    failures: list[str] = []
    end_s = time.perf_counter() + seconds

    async def user() -> None:
        connection: _Connection | None = None
        while time.perf_counter() < end_s:
            request = target.request(bodies())
            started = time.perf_counter()
            try:
                connection = connection or await _Connection.open(target.port)
                answer, keeps = await connection.ask(request)
            except (OSError, asyncio.IncompleteReadError) as error:
                failures.append(repr(error))
                connection = None
                continue
            latencies.append(time.perf_counter() - started)
            if b" 200 " not in answer[:16] or b"world" not in answer:
                failures.append(answer[:300].decode(errors="replace"))
            if not keeps:
                connection.close()
                connection = None
        if connection is not None:
            connection.close()

    started = time.perf_counter()
    await asyncio.gather(*(user() for _ in range(concurrency)))
    took_s = time.perf_counter() - started
    if failures:
        print(f"  {target.name}: {len(failures)} failed, first: {failures[0]!r}", flush=True)
    latencies.sort()
    if not latencies:
        return Load(0.0, float("nan"), float("nan"), len(failures))
    p99 = latencies[min(len(latencies) - 1, int(len(latencies) * 0.99))]
    good = len(latencies) - len(failures)
    return Load(good / took_s, median(latencies) * 1000, p99 * 1000, len(failures))


class _Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, port: int) -> "_Connection":
        return cls(*await asyncio.open_connection("127.0.0.1", port, limit=2**24))

    async def ask(self, request: bytes) -> tuple[bytes, bool]:
        """The whole response, and whether the connection may be used again."""
        self._writer.write(request)
        await self._writer.drain()
        head = await self._reader.readuntil(b"\r\n\r\n")
        lower = head.lower()
        body = b"".join([part async for part in self._body(lower)])
        return head + body, b"connection: close" not in lower

    async def _body(self, head: bytes) -> AsyncIterator[bytes]:
        if b"transfer-encoding: chunked" in head:
            while size := int(await self._reader.readline(), 16):
                yield (await self._reader.readexactly(size + 2))[:-2]
            await self._reader.readexactly(2)
        else:
            length = head.split(b"content-length:")[1].split(b"\r\n")[0]
            yield await self._reader.readexactly(int(length))

    def close(self) -> None:
        with suppress(OSError):
            self._writer.close()


def numbered(template: bytes, mark: bytes) -> Body:
    """Bodies in which every `mark` is replaced by a number of its length that never repeats,
    written in letters: tokenizers differ in what they make of digits."""

    def numbers() -> Iterator[bytes]:
        number = int(time.time()) % 10 ** (len(mark) - 3) * 1000
        while True:
            number += 1
            yield template.replace(mark, (b"%0*d" % (len(mark), number)).translate(LETTERS))

    return numbers().__next__
