"""PDF to text, page by page, through PDFium. The only module that knows pypdfium2."""

from pathlib import Path

import pypdfium2
import pypdfium2.raw as pdfium

from ingest.api import PermanentError
from ingest.parsing.decoding import without_surrogates
from ingest.parsing.parsed import Heading, Parsed, ParseLimits

PAGE_BREAK = "\n\n"
NOTED_PAGES = 20
CONTROLS_TO_SPACES = {code: " " for code in range(32) if chr(code) not in "\t\n"}
CAUSES = {
    pdfium.FPDF_ERR_PASSWORD: "The PDF is protected by a password; upload it without one.",
    pdfium.FPDF_ERR_SECURITY: "The PDF uses an encryption that cannot be read.",
    pdfium.FPDF_ERR_FORMAT: "The file says that it is a PDF, but it is broken.",
}


def parse_pdf(path: Path, limits: ParseLimits) -> Parsed:
    """Raises PermanentError for a locked or broken file and for one without any text."""
    try:
        document = pypdfium2.PdfDocument(path)
    except pypdfium2.PdfiumError as error:
        code = getattr(error, "err_code", None)
        cause = CAUSES.get(code, "The PDF cannot be opened.")
        raise PermanentError(cause) from error
    try:
        return _parse(document, limits)
    finally:
        document.close()


def _parse(document: pypdfium2.PdfDocument, limits: ParseLimits) -> Parsed:
    num_pages = len(document)
    if num_pages > limits.max_pages:
        raise PermanentError(
            f"The PDF has {num_pages} pages; the limit is {limits.max_pages} pages."
        )
    pages, starts, length = list[str](), list[int](), 0
    blank, broken = list[int](), list[int]()
    for index in range(num_pages):
        text = _page_text(document, index)
        if text is None:
            broken.append(index + 1)
        elif not text.strip():
            blank.append(index + 1)
        starts.append(length)
        pages.append((text or "") + (PAGE_BREAK if index + 1 < num_pages else ""))
        length += len(pages[-1])
        if length > limits.max_chars:
            raise PermanentError(f"The PDF has more than {limits.max_chars} characters of text.")
    if len(blank) + len(broken) == num_pages:
        raise PermanentError(_no_text(num_pages, len(broken)))
    notes = _page_notes(blank, broken, num_pages) + _other_notes(document)
    outline = _outline(document, starts)
    return Parsed(text="".join(pages), notes=notes, page_starts=starts, outline=outline)


def _page_text(document: pypdfium2.PdfDocument, index: int) -> str | None:
    try:
        page = document[index]
    except pypdfium2.PdfiumError:
        return None
    try:
        textpage = page.get_textpage()
    except pypdfium2.PdfiumError:
        return None
    else:
        try:
            return _tidy(textpage.get_text_bounded())
        finally:
            textpage.close()
    finally:
        page.close()


def _tidy(text: str) -> str:
    """PDFium ends lines with CR LF and marks a hyphen at a line's end with U+FFFE or U+0002."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    hyphens = lines.replace("\ufffe", "-").replace("\x02", "-")
    return without_surrogates(hyphens.translate(CONTROLS_TO_SPACES))


def _no_text(num_pages: int, num_broken: int) -> str:
    if num_pages == 0:
        return "The PDF has no pages."
    if num_broken == num_pages:
        return f"None of the PDF's {num_pages} page(s) could be read."
    return f"No text on any of the PDF's {num_pages} page(s); they are probably scanned images."


def _page_notes(blank: list[int], broken: list[int], num_pages: int) -> list[str]:
    notes = []
    if blank:
        notes.append(f"No text on {_numbered(blank)} of {num_pages}: blank, or images only.")
    if broken:
        notes.append(f"Could not read {_numbered(broken)} of {num_pages}: broken in the file.")
    return notes


def _numbered(pages: list[int]) -> str:
    shown = ", ".join(map(str, pages[:NOTED_PAGES]))
    more = f" and {len(pages) - NOTED_PAGES} more" if len(pages) > NOTED_PAGES else ""
    return f"page{'s' if len(pages) > 1 else ''} {shown}{more}"


def _other_notes(document: pypdfium2.PdfDocument) -> list[str]:
    notes = []
    num_attachments = document.count_attachments()
    if num_attachments:
        notes.append(f"Did not read {num_attachments} attached file(s).")
    if document.get_formtype() != pdfium.FORMTYPE_NONE:
        notes.append("Did not read what is filled into form fields.")
    return notes


def _outline(document: pypdfium2.PdfDocument, starts: list[int]) -> list[Heading]:
    headings = []
    try:
        for bookmark in document.get_toc():
            destination = bookmark.get_dest()
            index = destination.get_index() if destination is not None else None
            title = without_surrogates(bookmark.get_title()).strip("\x00 \n\r\t")
            if index is not None and 0 <= index < len(starts) and title:
                headings.append(Heading(starts[index], bookmark.level + 1, title))
    except pypdfium2.PdfiumError:
        return headings
    return sorted(headings, key=lambda heading: heading.start)
