"""A JSON object decoded while it comes in, so that no step of it is long, however long its strings.

Knows where strings begin and end; everything is decoded by msgspec. A string that does not end in
the slice in which it begins is taken out and decoded slice by slice; the rest of the body is small
and decoded at the end.
"""

import json
import re
import secrets

import msgspec

from gateway.api import InvalidRequest

LONG_BYTES = 16_384
"""An unfinished string longer than this is taken out."""

LONGEST_ESCAPE = 12
FEW_QUOTES = 64

WHOLE_STRINGS = re.compile(rb'(?:[^"]*+"[^"\\]*+(?:\\.[^"\\]*+)*+")*+', re.DOTALL)
"""All that lies before the end of the last whole string."""

INSIDE = re.compile(
    rb"[^\"\\]*+(?:\\(?:[^u]|u(?![dD][89abAB])[0-9a-fA-F]{4}"
    rb"|u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})[^\"\\]*+)*+",
    re.DOTALL,
)
"""More of a string, up to its end or to an escape that is not complete."""

HIGH_SURROGATE = re.compile(rb"\\u[dD][89abAB]")
MAX_PROBED_BYTES = 2**20


class ObjectReader:
    """`feed` it slices of a body, each a small one; `finish` gives the object.

    Both raise InvalidRequest for what is no JSON object.
    """

    def __init__(self) -> None:
        # Unguessable, so that no caller's text can pose as one that was taken out.
        self._nonce = secrets.token_hex(8)
        self._rest = b""
        self._short = bytearray()
        self._open: GrowingText | None = None
        self._long: list[GrowingText] = []

    def __len__(self) -> int:
        """Bytes that `finish` has to do with."""
        return len(self._short) + sum(map(len, self._long))

    def feed(self, data: bytes) -> None:
        data, self._rest = self._rest + data, b""
        while data:
            data = self._outside(data) if self._open is None else self._inside(data)

    def finish(self) -> dict[str, object]:
        """Blocking, once only; the object takes over what was read."""
        if self._open is not None:
            said = _wrong_escape(self._rest) if self._rest[:1] == b"\\" else TRUNCATED
            raise _broken(said)
        body = decode(bytes(self._short + self._rest), is_whole=not self._long)
        if not isinstance(body, dict):
            raise InvalidRequest(
                "The JSON body of your request must be an object.", param=None, code="invalid_json"
            )
        if not self._long:
            return body
        texts = {self._name(i): long.take() for i, long in enumerate(self._long)}
        try:
            filled = _filled(body, texts)
        except RecursionError:
            raise _broken("it is nested too deeply") from None
        assert isinstance(filled, dict)
        return filled

    def _name(self, index: int) -> str:
        return f"\ue000{self._nonce}-{index}\ue001"

    def _outside(self, data: bytes) -> bytes:
        found = WHOLE_STRINGS.match(data)
        assert found is not None, "nothing is a match, too"
        begins = data.find(b'"', found.end())
        if begins < 0:
            self._short += data
            return b""
        self._short += data[:begins]
        if len(data) - begins <= LONG_BYTES:
            self._rest = data[begins:]
            return b""
        self._short += f'"{self._name(len(self._long))}"'.encode()
        self._open = GrowingText()
        self._long.append(self._open)
        return data[begins + 1 :]

    def _inside(self, data: bytes) -> bytes:
        assert self._open is not None
        end = _inside_until(data)
        if data[end : end + 1] == b'"':
            self._open.add(_text(data[:end]))
            self._open = None
            return data[end + 1 :]
        if len(data) - end >= LONGEST_ESCAPE:
            raise _broken(_wrong_escape(data[end : end + LONGEST_ESCAPE]))
        whole = end - _unfinished(data[:end])
        self._open.add(_text(data[:whole]))
        self._rest = data[whole:]
        return b""


class GrowingText:
    """Pieces that become one string while they come. Joined only at the end they would need
    megabytes of fresh memory when somebody already waits, and be held twice."""

    def __init__(self) -> None:
        self._text = ""
        self._pieces: list[str] = []
        self._num_waiting = 0

    def __len__(self) -> int:
        """Characters."""
        return len(self._text) + self._num_waiting

    def add(self, piece: str) -> None:
        self._pieces.append(piece)
        self._num_waiting += len(piece)
        # By an eighth at least, so that even an allocator that copies copies each text few times.
        if 8 * self._num_waiting >= len(self._text):
            self._join()

    def take(self) -> str:
        """The whole text, once."""
        self._join()
        text, self._text = self._text, ""
        return text

    def _join(self) -> None:
        # CPython lets a string grow in place while one local name is all that holds it.
        text, self._text = self._text, ""
        text += "".join(self._pieces)
        self._text = text
        self._pieces.clear()
        self._num_waiting = 0


def _text(raw: bytes) -> str:
    """Of the inside of a string, or of a piece of it."""
    text = decode(b'"%b"' % raw, is_whole=False)
    assert isinstance(text, str)
    return text


def _inside_until(data: bytes) -> int:
    """Where the string ends, or the first escape that is not complete; `data` begins inside.

    A regular expression looks at every byte, so it is only asked where it must be: at the end, or
    where quotes and escapes are many.
    """
    start = 0
    if data.count(b'"') <= FEW_QUOTES:
        quote = _closing_quote(data)
        if quote is not None:
            return quote
        start = _outside_escapes(data)
    found = INSIDE.match(data, start)
    assert found is not None, "nothing is a match, too"
    return found.end()


def _closing_quote(data: bytes) -> int | None:
    at = data.find(b'"')
    while at >= 0:
        before = data[max(0, at - LONGEST_ESCAPE) : at]
        num_slashes = len(before) - len(before.rstrip(b"\\"))
        if num_slashes == LONGEST_ESCAPE:
            num_slashes = at - len(data[:at].rstrip(b"\\"))
        if num_slashes % 2 == 0:
            return at
        at = data.find(b'"', at + 1)
    return None


def _outside_escapes(data: bytes) -> int:
    """A place near the end that is in no escape: no backslash is in the bytes before it."""
    for back in range(2 * LONGEST_ESCAPE, 20 * LONGEST_ESCAPE, LONGEST_ESCAPE):
        start = len(data) - back
        if start > 0 and b"\\" not in data[start : start + LONGEST_ESCAPE]:
            return start + LONGEST_ESCAPE
    return 0


def decode(raw: bytes, *, is_whole: bool = True) -> object:
    """JSON to values. Raises InvalidRequest, which tells a place only in a whole body."""
    try:
        return msgspec.json.decode(raw)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        said = str(error) if is_whole else str(error).partition(" (byte")[0]
        raise _broken(UNPAIRED if _is_unpaired(raw) else said) from None


TRUNCATED = "Input data was truncated"
UNPAIRED = "it has an unpaired surrogate (\\ud800 to \\udfff), which is no character"


def _is_unpaired(raw: bytes) -> bool:
    """The standard library reads such a body, and nobody can encode what it gives."""
    if len(raw) > MAX_PROBED_BYTES:
        return False
    try:
        text = json.dumps(json.loads(raw), ensure_ascii=False)
    except (ValueError, RecursionError):
        return False
    return re.search("[\ud800-\udfff]", text) is not None


def _wrong_escape(escape: bytes) -> str:
    if HIGH_SURROGATE.match(escape):
        return UNPAIRED
    return "JSON is malformed: invalid escape character in string"


def _broken(said: str) -> InvalidRequest:
    return InvalidRequest(
        f"We could not parse the JSON body of your request: {said}.",
        param=None,
        code="invalid_json",
    )


def _unfinished(data: bytes) -> int:
    """How many bytes at the end begin a character of UTF-8 whose other bytes are still to come."""
    for back in range(1, min(3, len(data)) + 1):
        byte = data[-back]
        if byte >= 0xC0:
            needed = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return back if back < needed else 0
        if byte < 0x80:
            return 0
    return 0


def _filled(value: object, texts: dict[str, str]) -> object:
    """The same value with the long strings back in their places; each text is let go."""
    if isinstance(value, str):
        return texts.get(value, value)
    if isinstance(value, list):
        return [_filled(inner, texts) for inner in value]
    if isinstance(value, dict):
        return {texts.get(key, key): _filled(inner, texts) for key, inner in value.items()}
    return value
