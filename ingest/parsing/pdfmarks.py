"""What people left on a PDF's page besides its text: comments, and what is filled into forms.

Knows PDFium's annotations; knows nothing of pages' own text.
"""

import ctypes
from collections.abc import Callable

import pypdfium2
import pypdfium2.raw as pdfium

MAX_MARKS = 5_000
"""Of one page; more are somebody's joke."""
NO_COMMENTS = frozenset({pdfium.FPDF_ANNOT_LINK, pdfium.FPDF_ANNOT_POPUP, pdfium.FPDF_ANNOT_WIDGET})
UNSET = frozenset({"", "Off"})
CONTENTS, AUTHOR = b"Contents", b"T"
MAX_BYTES = 16 << 20

Mark = object
"""PDFium's handle of an annotation."""


def page_marks(page: pypdfium2.PdfPage) -> list[str]:
    """A text for each, those that repeat another left out."""
    number = min(pdfium.FPDFPage_GetAnnotCount(page), MAX_MARKS)
    return list(dict.fromkeys(filter(None, (_mark(page, index) for index in range(number)))))


def _mark(page: pypdfium2.PdfPage, index: int) -> str:
    mark = pdfium.FPDFPage_GetAnnot(page, index)
    if not mark:
        return ""
    try:
        subtype = pdfium.FPDFAnnot_GetSubtype(mark)
        if subtype == pdfium.FPDF_ANNOT_WIDGET:
            return _field(page, mark)
        return "" if subtype in NO_COMMENTS else _comment(mark)
    finally:
        pdfium.FPDFPage_CloseAnnot(mark)


def _comment(mark: Mark) -> str:
    words = _text(
        lambda buffer, size: pdfium.FPDFAnnot_GetStringValue(mark, CONTENTS, buffer, size)
    )
    author = _text(lambda buffer, size: pdfium.FPDFAnnot_GetStringValue(mark, AUTHOR, buffer, size))
    if not words.strip():
        return ""
    return f"Comment by {author}: {words}" if author.strip() else f"Comment: {words}"


def _field(page: pypdfium2.PdfPage, mark: Mark) -> str:
    form = page.formenv
    if form is None:
        return ""
    value = _text(lambda buffer, size: pdfium.FPDFAnnot_GetFormFieldValue(form, mark, buffer, size))
    name = _text(lambda buffer, size: pdfium.FPDFAnnot_GetFormFieldName(form, mark, buffer, size))
    return "" if value.strip() in UNSET else f"Form field {name}: {value}"


def _text(get: Callable[[object, int], int]) -> str:
    """PDFium first tells the size in bytes, then fills a buffer with UTF-16 and a NUL."""
    size = get(None, 0)
    if not 2 <= size <= MAX_BYTES:
        return ""
    buffer = ctypes.create_string_buffer(size)
    get(ctypes.cast(buffer, ctypes.POINTER(pdfium.FPDF_WCHAR)), size)
    return buffer.raw[:size].decode("utf-16-le", "replace").rstrip("\0")
