"""Server-sent events off a byte stream, as an upstream sends them; knows no event's meaning.

Lines may end in LF or CRLF and be megabytes long; comments and fields other than `data` are
skipped, as the standard has it.
"""

from collections.abc import AsyncGenerator, AsyncIterable
from contextlib import aclosing

MAX_EVENT_BYTES = 64 * 2**20


class EventTooLong(Exception):
    """Caught where the stream is read: the server sends an event without end."""


async def data_of(chunks: AsyncIterable[bytes]) -> AsyncGenerator[bytes, None]:
    """The data of every event, in order. An event that the stream's end cuts short is left out.

    Raises EventTooLong.
    """
    data: list[bytes] = []
    num_bytes = 0
    async with aclosing(_lines(chunks)) as lines:
        async for line in lines:
            if line.startswith(b"data:"):
                value = line[6:] if line.startswith(b"data: ") else line[5:]
                num_bytes += len(value)
                if num_bytes > MAX_EVENT_BYTES:
                    raise EventTooLong
                data.append(value)
            elif not line and data:
                yield data[0] if len(data) == 1 else b"\n".join(data)
                data, num_bytes = [], 0


async def _lines(chunks: AsyncIterable[bytes]) -> AsyncGenerator[bytes, None]:
    """Without their ends. Each byte is looked at once, however the line is cut into chunks."""
    open_line: list[bytes] = []
    num_bytes = 0
    async for chunk in chunks:
        start = 0
        while (stop := chunk.find(b"\n", start)) >= 0:
            line = chunk[start:stop]
            if open_line:
                open_line.append(line)
                line = b"".join(open_line)
                open_line, num_bytes = [], 0
            yield line.removesuffix(b"\r")
            start = stop + 1
        if start < len(chunk):
            open_line.append(chunk[start:])
            num_bytes += len(chunk) - start
            if num_bytes > MAX_EVENT_BYTES:
                raise EventTooLong
