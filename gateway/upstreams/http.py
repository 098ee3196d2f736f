"""HTTP/1.1 to one server: kept connections, one request at a time on each; knows no bodies.

Lean because it stands in every request's way: httpx took a third of the gateway's time for a
short prompt. A response that is not read to its end closes its connection.
"""

import asyncio
import ssl
import zlib
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from time import monotonic
from typing import Protocol, cast
from urllib.parse import urlsplit

import httptools

CONNECT_S = 5.0
IDLE_S = 4.0
"""Shorter than uvicorn's five seconds: a connection is never used while its server closes it."""

MAX_IDLE = 64
MAX_WAITING_BYTES = 2**20
"""Reading pauses while this much of a response waits for its reader."""


class NotConnected(Exception):
    """Nothing was sent."""


class Broken(Exception):
    """The connection or what came over it broke after the request had been sent."""


class _Decoder(Protocol):
    def decompress(self, data: bytes, /) -> bytes: ...


class Response:
    """`headers` have lower-case names; of a repeated one the last counts."""

    def __init__(self, connection: "_Connection") -> None:
        self._connection = connection
        self.status = 0
        self.headers: dict[str, str] = {}

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """The body as it comes, unzipped. Raises Broken."""
        decoder = _decoder(self.headers.get("content-encoding", "identity"))
        while chunk := await self._connection.next_chunk():
            try:
                yield decoder.decompress(chunk) if decoder else chunk
            except zlib.error as error:
                raise Broken(f"the body cannot be unzipped: {error}") from error


class Pool:
    """`headers` are sent with every request. What was idle for `idle_s` is not used again, and
    closed at the next occasion."""

    def __init__(
        self, base_url: str, headers: Mapping[str, str], *, idle_s: float = IDLE_S
    ) -> None:
        parts = urlsplit(base_url)
        assert parts.hostname is not None, "checked with the configuration"
        self._host = parts.hostname
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._port = parts.port or (443 if self._tls else 80)
        self._prefix = parts.path.rstrip("/")
        fixed = {"host": parts.netloc.rpartition("@")[2], "accept-encoding": "identity", **headers}
        self._head = "".join(f"{name}: {value}\r\n" for name, value in fixed.items())
        self._idle_s = idle_s
        self._idle: deque[_Connection] = deque()
        """The longest idle first."""

    @asynccontextmanager
    async def post(
        self, path: str, body: bytes, headers: Mapping[str, str]
    ) -> AsyncIterator[Response]:
        """The response once its headers came. Raises NotConnected and Broken."""
        connection = self._kept() or await self._connected()
        try:
            own = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
            head = f"POST {self._prefix}{path} HTTP/1.1\r\n{self._head}{own}"
            connection.send(f"{head}content-length: {len(body)}\r\n\r\n".encode("latin-1"), body)
            yield await connection.response()
        finally:
            self._give_back(connection)

    async def aclose(self) -> None:
        for connection in self._idle:
            connection.close()
        self._idle.clear()
        # A transport closes its socket in the loop's next turn.
        await asyncio.sleep(0)

    def _kept(self) -> "_Connection | None":
        self._close_stale()
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open:
                return connection
        return None

    def _close_stale(self) -> None:
        """A burst leaves more connections than what follows uses: those would stay open."""
        oldest_s = monotonic() - self._idle_s
        while self._idle and self._idle[0].idle_since_s <= oldest_s:
            self._idle.popleft().close()

    async def _connected(self) -> "_Connection":
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_S):
                _, connection = await loop.create_connection(
                    _Connection, self._host, self._port, ssl=self._tls
                )
        except (OSError, TimeoutError) as error:
            raise NotConnected(str(error) or f"no connection within {CONNECT_S:.0f} s") from error
        return connection

    def _give_back(self, connection: "_Connection") -> None:
        self._close_stale()
        if connection.may_be_kept and len(self._idle) < MAX_IDLE:
            connection.idle_since_s = monotonic()
            self._idle.append(connection)
        else:
            connection.close()


class _Connection(asyncio.Protocol):
    def __init__(self) -> None:
        self.idle_since_s = 0.0
        self.is_open = False
        self._response = Response(self)
        self._parser = httptools.HttpResponseParser(self)
        self._chunks: deque[bytes] = deque()
        self._num_waiting = 0
        self._is_paused = False
        self._has_headers = False
        self._is_complete = False
        self._keeps = False
        self._failure: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def may_be_kept(self) -> bool:
        return self.is_open and self._is_complete and self._keeps and not self._chunks

    def send(self, head: bytes, body: bytes) -> None:
        self._response = Response(self)
        self._parser = httptools.HttpResponseParser(self)
        self._has_headers = self._is_complete = self._keeps = False
        self._transport.writelines([head, body])

    async def response(self) -> Response:
        while not self._has_headers:
            await self._more()
        return self._response

    async def next_chunk(self) -> bytes:
        """Empty at the body's end."""
        while not self._chunks:
            if self._is_complete:
                return b""
            await self._more()
        chunk = self._chunks.popleft()
        self._num_waiting -= len(chunk)
        if self._is_paused and self._num_waiting < MAX_WAITING_BYTES // 2:
            self._is_paused = False
            self._transport.resume_reading()
        return chunk

    def close(self) -> None:
        if self.is_open:
            self.is_open = False
            self._transport.abort()

    async def _more(self) -> None:
        if self._failure is not None:
            raise Broken(str(self._failure))
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclass of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self.is_open = True

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._failure = error
            self.close()
        if self._num_waiting > MAX_WAITING_BYTES and not self._is_paused and self.is_open:
            self._is_paused = True
            self._transport.pause_reading()
        self._wake()

    def connection_lost(self, error: Exception | None) -> None:
        self.is_open = False
        if self._has_headers and not self._is_framed():
            self._is_complete = True
        self._failure = self._failure or error or ConnectionError("the server hung up")
        self._wake()

    def _is_framed(self) -> bool:
        """Whether the body tells its own end; otherwise the connection's end is the body's."""
        headers = self._response.headers
        return "content-length" in headers or "transfer-encoding" in headers

    def on_header(self, name: bytes, value: bytes) -> None:
        self._response.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self._response.status = self._parser.get_status_code()
        # An interim 100 or 103 is followed by the real one.
        self._has_headers = self._response.status >= 200

    def on_body(self, body: bytes) -> None:
        self._chunks.append(body)
        self._num_waiting += len(body)

    def on_message_complete(self) -> None:
        self._is_complete = self._has_headers
        self._keeps = self._parser.should_keep_alive()


def _decoder(encoding: str) -> _Decoder | None:
    match encoding.lower():
        case "identity" | "":
            return None
        case "gzip" | "x-gzip" | "deflate":
            return zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)
        case _:
            raise Broken(f"the body is encoded as {encoding}, which was not asked for")
