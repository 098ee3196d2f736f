"""JSON and JSON Lines made readable: letters instead of escapes, lines instead of one long one.

Knows JSON's tokens, not what they say. Names, order and numbers stay as they are written.
"""

import re
from collections.abc import Iterator

import msgspec

from ingest.api import PermanentError
from ingest.parsing.decoding import without_surrogates
from ingest.parsing.manuscript import numbered
from ingest.parsing.parsed import Parsed, ParseLimits

MAX_LINE_CHARS = 2_000
"""A longer line is no line to read: the whole text is laid out anew."""
MAX_INDENT = 12
INDENT = "  "
ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)", re.S
)
FIRST_LETTER = "\x80"
"""Below it, an escape may be needed, or is as readable."""
TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+', re.S)
OPENING, CLOSING = frozenset("{["), frozenset("}]")


def parse_json(text: str, limits: ParseLimits) -> Parsed:
    readable, notes = ESCAPE.sub(_letter, text), []
    problem = problem_of(text)
    if problem is not None:
        notes.append(f"Read as plain text; as JSON it is broken: {problem}.")
    elif max(map(len, readable.split("\n"))) > MAX_LINE_CHARS:
        readable = _laid_out(readable, limits)
        notes.append("Laid out anew, one value on a line: a line of the file is too long to read.")
    return Parsed(text=readable, notes=notes)


def parse_json_lines(text: str) -> Parsed:
    """A record stays on its line."""
    lines = text.split("\n")
    broken = [i for i, line in enumerate(lines, start=1) if line.strip() and problem_of(line)]
    notes = [f"Read as plain text; broken as JSON: {numbered('line', broken)}."] if broken else []
    return Parsed(text=ESCAPE.sub(_letter, text), notes=notes)


def problem_of(text: str) -> str | None:
    """What is wrong with some JSON; None if nothing is."""
    try:
        msgspec.json.decode(without_surrogates(text).encode(), type=msgspec.Raw)
    except msgspec.DecodeError as error:
        return str(error)
    except RecursionError:
        return "it nests too deeply"
    return None


def _letter(found: re.Match[str]) -> str:
    escape = found[0]
    if escape[1] != "u":
        return escape
    units = b"".join(int(code, 16).to_bytes(2, "big") for code in escape[2:].split("\\u"))
    letter = units.decode("utf-16-be", "replace")
    return letter if letter >= FIRST_LETTER and letter != "\ufffd" else escape


def _laid_out(text: str, limits: ParseLimits) -> str:
    """Raises PermanentError when the line breaks make it longer than the limit."""
    pieces, length = list[str](), 0
    for piece in _spaced(text):
        pieces.append(piece)
        length += len(piece)
        if length > limits.max_chars:
            raise PermanentError(
                f"The file has more than {limits.max_chars} characters of text when it is laid "
                "out to be read, which is the limit."
            )
    return "".join(pieces)


def _spaced(text: str) -> Iterator[str]:
    depth, after_opening = 0, False
    for found in TOKEN.finditer(text):
        token = found[0]
        if token in CLOSING:
            depth -= 1
            yield "" if after_opening else _new_line(depth)
        elif after_opening:
            yield _new_line(depth)
        after_opening = token in OPENING
        depth += after_opening
        yield token
        if token == ",":
            yield _new_line(depth)
        elif token == ":":
            yield " "


def _new_line(depth: int) -> str:
    """Nothing is indented without end: a file of brackets would grow by its square."""
    return "\n" + INDENT * min(depth, MAX_INDENT)
