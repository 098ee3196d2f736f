"""Any file to text: picks the parser and holds its output to the limits. Runs in the sandbox."""

from pathlib import Path

from ingest.api import PermanentError
from ingest.parsing.decoding import decode
from ingest.parsing.html import parse_html
from ingest.parsing.outline import markdown_outline
from ingest.parsing.parsed import Parsed, ParseLimits
from ingest.parsing.pdf import parse_pdf
from ingest.parsing.sniff import Kind, sniff


def read(path: Path, filename: str, limits: ParseLimits) -> Parsed:
    """Raises PermanentError with a cause for people."""
    raw = path.read_bytes()
    match sniff(raw, filename):
        case Kind.PDF:
            del raw
            parsed = parse_pdf(path, limits)
        case Kind.HTML:
            parsed = parse_html(raw)
        case Kind.MARKDOWN:
            parsed = _plain(raw)
            parsed = Parsed(
                text=parsed.text, notes=parsed.notes, outline=markdown_outline(parsed.text)
            )
        case Kind.TEXT:
            parsed = _plain(raw)
    if len(parsed.text) > limits.max_chars:
        raise PermanentError(
            f"The file has {len(parsed.text)} characters of text; the limit is {limits.max_chars}."
        )
    return parsed


def _plain(raw: bytes) -> Parsed:
    decoded = decode(raw)
    if not decoded.text.strip():
        raise PermanentError("The file holds nothing but white space.")
    is_unicode = decoded.encoding.startswith("utf")
    notes = [] if is_unicode else [f"Read as {decoded.encoding}: the file is not UTF-8."]
    return Parsed(text=decoded.text, notes=notes)
