"""Server-sent events as they arrive, comments kept; knows framing and nothing of the payload."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SseComment:
    text: str


@dataclass(frozen=True, slots=True)
class SseData:
    text: str


def read_sse(body: Iterable[bytes]) -> Iterator[SseComment | SseData]:
    """Events and comments in order. Lines end in LF, CRLF or CR, wherever the body is cut.

    Other fields (`event`, `id`, `retry`) are passed over; an event without its closing blank
    line is dropped, as the standard has it.
    """
    data: list[str] = []
    for raw in read_lines(body):
        line = raw.decode(errors="replace")
        if not line:
            if data:
                yield SseData("\n".join(data))
            data = []
        elif line.startswith(":"):
            yield SseComment(line[1:].removeprefix(" "))
        elif line == "data" or line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))


def read_lines(body: Iterable[bytes]) -> Iterator[bytes]:
    """Whole lines without their ends. Only CR and LF end a line: U+2028 inside JSON does not."""
    rest = b""
    ended_with_cr = False
    for piece in body:
        if not piece:
            continue
        fresh = piece.removeprefix(b"\n") if ended_with_cr else piece
        ended_with_cr = piece.endswith(b"\r")
        lines = (rest + fresh).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        rest = lines.pop()
        yield from lines
    if rest:
        yield rest
