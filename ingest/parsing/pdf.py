"""PDF to text, page by page, through PDFium. Only this module and `pdfmarks` know pypdfium2."""

import pypdfium2
import pypdfium2.raw as pdfium

from ingest.api import PermanentError
from ingest.parsing.decoding import without_surrogates
from ingest.parsing.manuscript import CONTROLS, counted, numbered, short
from ingest.parsing.parsed import Heading, Parsed, ParseLimits
from ingest.parsing.pdfmarks import page_marks

PAGE_BREAK = "\n\n"
SHOWN_ATTACHMENTS = 10
XFA = frozenset({pdfium.FORMTYPE_XFA_FULL, pdfium.FORMTYPE_XFA_FOREGROUND})
CAUSES = {
    pdfium.FPDF_ERR_PASSWORD: "The PDF is protected by a password; upload it without one.",
    pdfium.FPDF_ERR_SECURITY: "The PDF uses an encryption that cannot be read.",
    pdfium.FPDF_ERR_FORMAT: "The file says that it is a PDF, but it is broken.",
}


def parse_pdf(raw: bytes, limits: ParseLimits) -> Parsed:
    """Raises PermanentError for a locked or broken file and for one without any text."""
    document = _open(raw)
    try:
        return _parse(document, limits)
    finally:
        document.close()


def num_pages(raw: bytes, limits: ParseLimits) -> int:
    """Raises PermanentError for a locked or broken file and for one with too many pages."""
    document = _open(raw)
    try:
        return _num_pages(document, limits)
    finally:
        document.close()


def _open(raw: bytes) -> pypdfium2.PdfDocument:
    try:
        return pypdfium2.PdfDocument(raw)
    except pypdfium2.PdfiumError as error:
        code = getattr(error, "err_code", None)
        raise PermanentError(CAUSES.get(code, "The PDF cannot be opened.")) from error


def _num_pages(document: pypdfium2.PdfDocument, limits: ParseLimits) -> int:
    number = len(document)
    if number > limits.max_pages:
        raise PermanentError(f"The PDF has {number} pages; the limit is {limits.max_pages} pages.")
    return number


def _parse(document: pypdfium2.PdfDocument, limits: ParseLimits) -> Parsed:
    total = _num_pages(document, limits)
    _open_form(document)
    pages, starts, length = list[str](), list[int](), 0
    blank, broken = list[int](), list[int]()
    for index in range(total):
        text = _page_text(document, index)
        if text is None:
            broken.append(index + 1)
        elif not text.strip():
            blank.append(index + 1)
        starts.append(length)
        pages.append((text or "") + (PAGE_BREAK if index + 1 < total else ""))
        length += len(pages[-1])
        if length > limits.max_chars:
            raise PermanentError(f"The PDF has more than {limits.max_chars} characters of text.")
    if len(blank) + len(broken) == total:
        raise PermanentError(_no_text(total, len(broken)))
    notes = [f"Read {counted(total, 'page')}, {counted(length, 'character')}."]
    notes += _page_notes(blank, broken, total) + _other_notes(document)
    return Parsed(
        text="".join(pages), notes=notes, page_starts=starts, outline=_outline(document, starts)
    )


def _open_form(document: pypdfium2.PdfDocument) -> None:
    """Filled fields are read through it; a form too broken for that is read as its pages are."""
    if document.get_formtype() == pdfium.FORMTYPE_NONE:
        return
    try:
        document.init_forms()
    except pypdfium2.PdfiumError:
        return


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
            marks = [_tidy(mark) for mark in page_marks(page)]
            return PAGE_BREAK.join(filter(None, [_tidy(textpage.get_text_bounded()), *marks]))
        finally:
            textpage.close()
    finally:
        page.close()


def _tidy(text: str) -> str:
    """PDFium ends lines with CR LF and marks a hyphen at a line's end with U+FFFE or U+0002."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    hyphens = lines.replace("\ufffe", "-").replace("\x02", "-")
    return without_surrogates(hyphens.translate(CONTROLS))


def _no_text(total: int, num_broken: int) -> str:
    if total == 0:
        return "The PDF has no pages."
    if num_broken == total:
        return f"None of the PDF's {total} page(s) could be read."
    return f"No text on any of the PDF's {total} page(s); they are probably scanned images."


def _page_notes(blank: list[int], broken: list[int], total: int) -> list[str]:
    notes = []
    if blank:
        notes.append(f"No text on {numbered('page', blank)} of {total}: blank, or images only.")
    if broken:
        notes.append(f"Could not read {numbered('page', broken)} of {total}: broken in the file.")
    return notes


def _other_notes(document: pypdfium2.PdfDocument) -> list[str]:
    notes = []
    number = document.count_attachments()
    if number:
        shown = min(number, SHOWN_ATTACHMENTS)
        names = [repr(short(document.get_attachment(i).get_name())) for i in range(shown)]
        more = f" and {number - shown} more" if number > shown else ""
        notes.append(f"Did not read {counted(number, 'attached file')}: {', '.join(names)}{more}.")
    if document.get_formtype() in XFA:
        notes.append("Did not read the XFA form in the file, only what it holds besides.")
    return notes


def _outline(document: pypdfium2.PdfDocument, starts: list[int]) -> list[Heading]:
    headings = []
    try:
        for bookmark in document.get_toc():
            destination = bookmark.get_dest()
            index = destination.get_index() if destination is not None else None
            title = short(bookmark.get_title())
            if index is not None and 0 <= index < len(starts) and title:
                headings.append(Heading(starts[index], bookmark.level + 1, title))
    except pypdfium2.PdfiumError:
        return headings
    return sorted(headings, key=lambda heading: heading.start)
