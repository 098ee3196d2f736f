"""What goes into a parser and what comes out, and how both cross a pipe. Knows no file format."""

import msgspec


class ParseLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much one file may cost. `memory_bytes` bounds the parser's whole address space.

    `max_pages` counts pages and slides. `max_unpacked_bytes` bounds what a ZIP archive unpacks to.
    """

    memory_bytes: int = 2 << 30
    cpu_s: int = 120
    wall_s: float = 180.0
    max_pages: int = 10_000
    max_chars: int = 64_000_000
    max_unpacked_bytes: int = 1 << 30


class ParseRequest(msgspec.Struct, frozen=True, kw_only=True):
    """`path` is where the bytes lie; `filename` is the caller's name for them."""

    path: str
    filename: str
    limits: ParseLimits


class Heading(msgspec.Struct, frozen=True, array_like=True):
    """A heading that begins at character `start` of the text; level 1 is the outermost."""

    start: int
    level: int
    title: str


class Parsed(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The text of a file. `page_starts` are offsets into it, one for each page; empty if unpaged.

    `notes` are sentences about what was not read, or how the bytes were understood.
    """

    text: str
    notes: list[str] = []
    page_starts: list[int] = []
    outline: list[Heading] = []


class Refused(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The parser will not read the file; `cause` is a sentence for people. `unsupported`: it is
    of a kind that nothing here reads, rather than damaged or too large."""

    cause: str
    unsupported: bool = False


Reply = Parsed | Refused

_encoder = msgspec.msgpack.Encoder()
_request = msgspec.msgpack.Decoder(ParseRequest)
_reply = msgspec.msgpack.Decoder(Reply)


def encode(message: ParseRequest | Reply) -> bytes:
    return _encoder.encode(message)


def decode_request(body: bytes) -> ParseRequest:
    return _request.decode(body)


def decode_reply(body: bytes) -> Reply:
    """Raises msgspec.DecodeError for anything that is not a parser's reply."""
    return _reply.decode(body)
