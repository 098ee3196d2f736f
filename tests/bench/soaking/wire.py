"""One HTTP exchange on a connection of its own, by a client that may leave in the middle of it.

Knows bytes and when to leave; no OpenAI.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from random import Random

LIMIT_S = 300.0
"""Long after every limit of the gateway: whoever has no answer then gets none."""


class Leave(StrEnum):
    """Where a client leaves: before its body is sent, before the answer, or in its middle."""

    SENDING = "sending"
    WAITING = "waiting"
    READING = "reading"


@dataclass(frozen=True, slots=True)
class Sent:
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes = b""

    @property
    def head(self) -> bytes:
        lines = [f"{self.method} {self.path} HTTP/1.1", "host: 127.0.0.1", "connection: close"]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        lines += [f"content-length: {len(self.body)}", "", ""]
        return "\r\n".join(lines).encode()


@dataclass(frozen=True, slots=True)
class Reply:
    """`is_whole`: the body came to the end that its head announced. Header names are lower-case."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    is_whole: bool


NOTHING = Reply(0, {}, b"", False)


async def exchange(
    port: int, sent: Sent, leave: Leave | None = None, rng: Random | None = None
) -> Reply | None:
    """None when the client left as it was told. An answer that breaks off is not whole."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**24)
    rng = rng or Random()
    try:
        async with asyncio.timeout(LIMIT_S):
            raw = await _exchanged(reader, writer, sent, leave, rng)
    except (OSError, asyncio.IncompleteReadError, TimeoutError):
        return NOTHING
    finally:
        if leave is not None and rng.random() < 0.5:
            writer.transport.abort()
        writer.close()
    return None if raw is None else _reply(raw)


async def _exchanged(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    sent: Sent,
    leave: Leave | None,
    rng: Random,
) -> bytes | None:
    body = sent.body
    if leave is Leave.SENDING:
        body = body[: rng.randrange(max(1, len(body)))]
    writer.write(sent.head + body)
    await writer.drain()
    match leave:
        case None:
            return await reader.read(-1)
        case Leave.READING:
            await reader.read(1)
            await asyncio.sleep(rng.uniform(0.0, 0.1))
        case _:
            await asyncio.sleep(rng.expovariate(1 / 0.03))
    return None


def _reply(raw: bytes) -> Reply:
    head, _, rest = raw.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    if not first.startswith("HTTP/1.1 "):
        return NOTHING
    headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in lines)}
    status = int(first.split(" ")[1])
    if headers.get("transfer-encoding") == "chunked":
        body, is_whole = _unchunked(rest)
    else:
        body, is_whole = rest, len(rest) == int(headers.get("content-length", "-1"))
    return Reply(status, headers, body, is_whole)


def _unchunked(rest: bytes) -> tuple[bytes, bool]:
    body = bytearray()
    while True:
        size, found, rest = rest.partition(b"\r\n")
        num_bytes = int(size or b"0", 16)
        if not found or num_bytes == 0 or len(rest) < num_bytes + 2:
            return bytes(body), bool(found) and size == b"0"
        body += rest[:num_bytes]
        rest = rest[num_bytes + 2 :]
