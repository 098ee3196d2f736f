"""Any file to text: picks the parser and holds its output to the limits. Runs in the sandbox."""

from collections.abc import Callable, Mapping
from pathlib import Path

from ingest.api import PermanentError
from ingest.parsing.code import code_outline
from ingest.parsing.decoding import decode
from ingest.parsing.delimited import parse_delimited
from ingest.parsing.docx import parse_docx
from ingest.parsing.html import parse_html
from ingest.parsing.mail import parse_mail
from ingest.parsing.outline import markdown_outline
from ingest.parsing.parsed import Heading, Parsed, ParseLimits
from ingest.parsing.pdf import parse_pdf
from ingest.parsing.pptx import parse_pptx
from ingest.parsing.sniff import Kind, sniff
from ingest.parsing.structured import parse_json, parse_json_lines
from ingest.parsing.xlsx import parse_xlsx

Parser = Callable[[bytes, ParseLimits], Parsed]


def read(path: Path, filename: str, limits: ParseLimits) -> Parsed:
    """Raises PermanentError with a cause for people."""
    return read_bytes(path.read_bytes(), filename, limits)


def read_bytes(
    raw: bytes, filename: str, limits: ParseLimits, *, parsers: Mapping[Kind, Parser] | None = None
) -> Parsed:
    """`parsers` may take the place of some of ours, for a kind each."""
    kind = sniff(raw, filename)
    parsed = ((parsers or {}).get(kind) or PARSERS[kind])(raw, limits)
    if len(parsed.text) > limits.max_chars:
        raise PermanentError(
            f"The file has {len(parsed.text)} characters of text; the limit is {limits.max_chars}."
        )
    return parsed


def _plain(raw: bytes, limits: ParseLimits) -> Parsed:
    decoded = decode(raw)
    if not decoded.text.strip():
        raise PermanentError("The file holds nothing but white space.")
    is_unicode = decoded.encoding.startswith("utf")
    notes = [] if is_unicode else [f"Read as {decoded.encoding}: the file is not UTF-8."]
    return Parsed(text=decoded.text, notes=notes)


def _outlined(outline: Callable[[str], list[Heading]]) -> Parser:
    def parse(raw: bytes, limits: ParseLimits) -> Parsed:
        plain = _plain(raw, limits)
        return Parsed(text=plain.text, notes=plain.notes, outline=outline(plain.text))

    return parse


def _from_text(parse_text: Callable[[str, ParseLimits], Parsed]) -> Parser:
    def parse(raw: bytes, limits: ParseLimits) -> Parsed:
        plain = _plain(raw, limits)
        parsed = parse_text(plain.text, limits)
        return Parsed(text=parsed.text, notes=parsed.notes + plain.notes, outline=parsed.outline)

    return parse


PARSERS: Mapping[Kind, Parser] = {
    Kind.TEXT: _plain,
    Kind.MARKDOWN: _outlined(markdown_outline),
    Kind.CODE: _outlined(code_outline),
    Kind.HTML: lambda raw, limits: parse_html(raw),
    Kind.TABLE: _from_text(parse_delimited),
    Kind.JSON: _from_text(parse_json),
    Kind.JSON_LINES: _from_text(lambda text, limits: parse_json_lines(text)),
    Kind.MAIL: lambda raw, limits: parse_mail(raw, limits, read_bytes),
    Kind.PDF: parse_pdf,
    Kind.DOCX: parse_docx,
    Kind.PPTX: parse_pptx,
    Kind.XLSX: parse_xlsx,
}
