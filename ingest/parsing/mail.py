"""E-mail messages to text: who, when, about what, the words, and what is attached.

Knows MIME; of other formats only HTML, and asks `read` for what is attached. Headers are decoded
here: the standard library's newer header parser raises on many that break the rules.
"""

from collections.abc import Callable, Iterator
from email.errors import HeaderParseError
from email.header import decode_header
from email.message import Message
from email.parser import BytesParser
from email.policy import compat32
from mimetypes import MimeTypes

import msgspec

from ingest.api import PermanentError
from ingest.parsing.decoding import decode
from ingest.parsing.html import parse_html
from ingest.parsing.manuscript import Manuscript, counted, one_line
from ingest.parsing.parsed import Parsed, ParseLimits

SHOWN_HEADERS = ("From", "To", "Cc", "Bcc", "Reply-To", "Date")
MAX_DEPTH = 4
"""Of messages attached to messages."""
MAX_PARTS = 1_000
"""Of one file, attached messages included."""
MESSAGE = "message/rfc822"
BODIES = frozenset({"text/plain", "text/html"})
NAMED_TYPES = MimeTypes()

Read = Callable[[bytes, str, ParseLimits], Parsed]


def parse_mail(raw: bytes, limits: ParseLimits, read: Read) -> Parsed:
    """Raises PermanentError for a message without header and text, or with too much of it."""
    try:
        message = BytesParser(policy=compat32).parsebytes(raw)
    except RecursionError as error:
        raise PermanentError("The message nests its parts too deeply to be read.") from error
    mail = Mail(limits, read)
    mail.write(message, depth=0)
    return mail.parsed()


class Mail:
    def __init__(self, limits: ParseLimits, read: Read) -> None:
        self._limits = limits
        self._read = read
        self._manuscript = Manuscript("message", limits)
        self._num_messages = 0
        self._num_attachments = 0
        self._num_parts = 0
        self._num_pages = 0
        self._notes: list[str] = []

    def write(self, message: Message, *, depth: int) -> None:
        self._num_messages += 1
        level = depth + 1
        self._manuscript.heading(level, header(message, "Subject") or "(no subject)")
        for name in SHOWN_HEADERS:
            value = header(message, name)
            if value:
                self._manuscript.line(f"{name}: {value}")
        for part in leaves(message):
            self._num_parts += 1
            if self._num_parts > MAX_PARTS:
                self._notes.append(f"Did not read more than {MAX_PARTS} parts of the message.")
                return
            self._part(part, depth, level)
        if message.defects:
            self._notes.append("The message breaks the rules of e-mail; perhaps it was cut short.")

    def parsed(self) -> Parsed:
        for sentence in dict.fromkeys(self._notes):
            self._manuscript.note(sentence)
        units = [
            counted(self._num_messages, "message"),
            counted(self._num_attachments, "attached file"),
        ]
        return self._manuscript.parsed(units)

    def _part(self, part: Message, depth: int, level: int) -> None:
        kind, name = part.get_content_type(), filename_of(part)
        if kind == MESSAGE:
            self._attached_message(part, depth)
        elif part.is_multipart():
            self._notes.append(f"Did not read a part of type {kind}.")
        elif kind in BODIES and not name and part.get_content_disposition() != "attachment":
            self._body(part, kind)
        else:
            self._attached_file(part, name or unnamed(kind), level + 1)

    def _body(self, part: Message, kind: str) -> None:
        raw, charset = payload(part), parameter(part, "charset")
        if not raw.strip():
            return
        try:
            if kind == "text/html":
                text = parse_html(raw, declared=charset).text
            else:
                text = decode(raw, declared=charset).text
        except PermanentError as error:
            self._notes.append(f"Did not read one part of the text: {error}")
        else:
            self._manuscript.block(text)

    def _attached_file(self, part: Message, name: str, level: int) -> None:
        limits = msgspec.structs.replace(
            self._limits,
            max_chars=self._limits.max_chars - self._manuscript.num_chars,
            max_pages=self._limits.max_pages - self._num_pages,
        )
        try:
            parsed = self._read(_as_utf8(part), name, limits)
        except PermanentError as error:
            self._notes.append(f"Did not read the attached {name!r}: {error}")
            return
        self._num_attachments += 1
        self._num_pages += len(parsed.page_starts)
        self._manuscript.heading(level, f"Attachment: {name}")
        self._manuscript.append(parsed, level=level)
        self._notes += [f"In {name!r}: {sentence}" for sentence in parsed.notes]

    def _attached_message(self, part: Message, depth: int) -> None:
        contents = part.get_payload()
        inner = contents[0] if isinstance(contents, list) and contents else None
        if not isinstance(inner, Message):
            self._notes.append("Did not read an attached message: it is empty.")
        elif depth + 1 > MAX_DEPTH:
            self._notes.append(f"Did not read messages attached more than {MAX_DEPTH} deep.")
        else:
            self.write(inner, depth=depth + 1)


def leaves(message: Message) -> Iterator[Message]:
    """What is to be read, in order: of alternatives the best, of the rest everything."""
    waiting = [message]
    while waiting:
        part = waiting.pop()
        contents = part.get_payload() if part.get_content_maintype() == "multipart" else None
        if not isinstance(contents, list):
            yield part
            continue
        inside = [each for each in contents if isinstance(each, Message)]
        if part.get_content_subtype() == "alternative":
            inside = inside if len(inside) < 2 else [_best(inside)]
        waiting.extend(reversed(inside))


def _best(alternatives: list[Message]) -> Message:
    """Plain text if it says anything; else the last, which the sender holds to be the best."""
    for part in alternatives:
        if part.get_content_type() == "text/plain" and payload(part).strip():
            return part
    readable = [
        each
        for each in alternatives
        if each.get_content_type() == "text/html" or each.is_multipart()
    ]
    return (readable or alternatives)[-1]


def header(message: Message, name: str) -> str:
    """The first header of that name as text on one line; empty if there is none."""
    for key, value in message.raw_items():
        if key.lower() == name.lower():
            return one_line(_decoded(_as_text(str(value))))
    return ""


def _as_text(value: str) -> str:
    """Bytes beyond ASCII arrive as lone surrogates."""
    raw = value.encode("utf-8", "surrogateescape")
    try:
        return decode(raw).text
    except PermanentError:
        return raw.decode("latin-1")


def _decoded(value: str) -> str:
    try:
        pieces = decode_header(value)
    except (HeaderParseError, ValueError):
        return value
    decoded = "".join(
        piece if isinstance(piece, str) else _piece(piece, charset) for piece, charset in pieces
    )
    return decoded or value


def _piece(raw: bytes, charset: str | None) -> str:
    try:
        return raw.decode(charset or "ascii", "replace")
    except (LookupError, ValueError):
        return raw.decode("utf-8", "replace")


def payload(part: Message) -> bytes:
    raw = part.get_payload(decode=True)
    return raw if isinstance(raw, bytes) else b""


def _as_utf8(part: Message) -> bytes:
    """An attached text in UTF-8 if the message tells its encoding; all else as it is.

    Raises PermanentError when it is not in that encoding.
    """
    raw, charset = payload(part), parameter(part, "charset")
    if charset is None or part.get_content_maintype() != "text":
        return raw
    return decode(raw, declared=charset).text.encode()


def parameter(part: Message, name: str) -> str | None:
    value = part.get_param(name)
    return value if isinstance(value, str) else None


def filename_of(part: Message) -> str:
    try:
        name = part.get_filename()
    except (LookupError, ValueError, TypeError):
        return "unnamed"
    return one_line(_decoded(_as_text(name))) if name else ""


def unnamed(kind: str) -> str:
    return f"unnamed{NAMED_TYPES.guess_extension(kind) or ''}"
