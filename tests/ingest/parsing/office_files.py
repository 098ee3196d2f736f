"""Office documents for the tests, made by the libraries that people make them with."""

import io
import zipfile
from collections.abc import Callable, Mapping

from docx import Document
from docx.document import Document as WordDocument
from hypothesis import HealthCheck, settings
from openpyxl import Workbook
from pptx import Presentation
from pptx.presentation import Presentation as Slides

from ingest.parsing.parsed import Parsed, ParseLimits
from ingest.parsing.registry import read_bytes

LIMITS = ParseLimits()
CALM = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""Office documents take milliseconds to make, and the machine may be busy."""


def docx_bytes(write: Callable[[WordDocument], object]) -> bytes:
    document, buffer = Document(), io.BytesIO()
    write(document)
    document.save(buffer)
    return buffer.getvalue()


def pptx_bytes(write: Callable[[Slides], object]) -> bytes:
    slides, buffer = Presentation(), io.BytesIO()
    write(slides)
    slides.save(buffer)
    return buffer.getvalue()


def xlsx_bytes(write: Callable[[Workbook], object]) -> bytes:
    book, buffer = Workbook(), io.BytesIO()
    write(book)
    book.save(buffer)
    return buffer.getvalue()


def with_parts(raw: bytes, parts: Mapping[str, bytes]) -> bytes:
    """The package with some parts replaced or added."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(raw)) as old, zipfile.ZipFile(buffer, "w", 8) as new:
        for name in old.namelist():
            if name not in parts:
                new.writestr(name, old.read(name))
        for name, content in parts.items():
            new.writestr(name, content)
    return buffer.getvalue()


def part_of(raw: bytes, name: str) -> bytes:
    with zipfile.ZipFile(io.BytesIO(raw)) as package:
        return package.read(name)


def read(raw: bytes, filename: str = "upload", limits: ParseLimits = LIMITS) -> Parsed:
    return read_bytes(raw, filename, limits)
