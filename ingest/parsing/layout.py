"""The layout-aware way to read PDF and Word files. The only module that knows docling.

Runs in the sandbox in the registry's place; see `choice`. docling brings torch and models:
`ParseLimits.memory_bytes` must then allow several GiB.
"""

import io
from pathlib import Path

from docling.datamodel.base_models import ConversionStatus, DocumentStream
from docling.document_converter import DocumentConverter

from ingest.api import PermanentError
from ingest.parsing import registry
from ingest.parsing.manuscript import counted
from ingest.parsing.outline import markdown_outline
from ingest.parsing.parsed import Parsed, ParseLimits
from ingest.parsing.pdf import num_pages
from ingest.parsing.sniff import Kind

PAGE_MARK = "\f"
PAGE_BREAK = "\n\n"
SHOWN_ERRORS = 5


def read(path: Path, filename: str, limits: ParseLimits) -> Parsed:
    """As the registry's, but for PDF and Word files. Raises PermanentError."""
    parsers = {Kind.PDF: parse_pdf, Kind.DOCX: parse_docx}
    return registry.read_bytes(path.read_bytes(), filename, limits, parsers=parsers)


def parse_pdf(raw: bytes, limits: ParseLimits) -> Parsed:
    num_pages(raw, limits)
    return _convert("upload.pdf", raw)


def parse_docx(raw: bytes, limits: ParseLimits) -> Parsed:
    return _convert("upload.docx", raw)


def _convert(name: str, raw: bytes) -> Parsed:
    source = DocumentStream(name=name, stream=io.BytesIO(raw))
    result = DocumentConverter().convert(source, raises_on_error=False)
    problems = "; ".join(str(each.error_message) for each in result.errors[:SHOWN_ERRORS])
    if result.status not in (ConversionStatus.SUCCESS, ConversionStatus.PARTIAL_SUCCESS):
        raise PermanentError(f"docling cannot read the file: {problems or 'no reason given'}.")
    marked = result.document.export_to_markdown(page_break_placeholder=PAGE_MARK)
    pages = [page.strip("\n") for page in marked.split(PAGE_MARK)]
    text = PAGE_BREAK.join(pages)
    if not text.strip():
        raise PermanentError("docling finds no text in the file.")
    notes = [f"Read with docling: {counted(len(text), 'character')}."]
    if result.status is ConversionStatus.PARTIAL_SUCCESS:
        notes.append(f"docling did not read all of it: {problems or 'no reason given'}.")
    starts = page_starts(pages) if name.endswith(".pdf") else []
    return Parsed(text=text, notes=notes, page_starts=starts, outline=markdown_outline(text))


def page_starts(pages: list[str]) -> list[int]:
    starts, length = list[int](), 0
    for page in pages:
        starts.append(length)
        length += len(page) + len(PAGE_BREAK)
    return starts
