"""Whatever the bytes: a text whose spans hold, or a refusal in a sentence."""

import io
import re
import zipfile
from contextlib import suppress
from itertools import cycle
from pathlib import Path
from random import Random

import pytest
from docx.document import Document
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.api import PermanentError
from ingest.parsing.parsed import Parsed, ParseLimits
from ingest.parsing.sandbox import Sandbox
from tests.ingest.parsing.office_files import (
    CALM,
    docx_bytes,
    part_of,
    pptx_bytes,
    read,
    with_parts,
    xlsx_bytes,
)
from tests.ingest.parsing.test_docx import lease
from tests.ingest.parsing.test_pptx import talk
from tests.ingest.parsing.test_xlsx import rents

LIMITS = ParseLimits(max_chars=50_000)
NAMES = "a.txt a.md a.html a.csv a.json a.jsonl a.eml a.py a.docx a.pptx a.xlsx a"
MAIL = b"MIME-Version: 1.0\r\nFrom: a@b\r\nContent-Type: multipart/mixed; boundary=x\r\n\r\n--x\r\n"
STARTS = (
    b"",
    b"PK\x03\x04",
    b"<html><meta charset=",
    b"\xff\xfe",
    b"{",
    b'"a";',
    MAIL,
    b"\xd0\xcf",
)
SENTENCE = re.compile(r"[A-Z].*\.", re.S)


def simple(document: Document) -> None:
    document.add_paragraph("words")


def light(raw: bytes) -> bytes:
    """Without the half a megabyte of styles that python-docx puts into every document."""
    styles = b'<styles><style styleId="Title"><name val="Title"/></style></styles>'
    return with_parts(raw, {"word/styles.xml": styles, "word/stylesWithEffects.xml": styles})


PACKAGES = (
    light(docx_bytes(simple)),
    light(docx_bytes(lease)),
    pptx_bytes(talk),
    xlsx_bytes(rents),
)


def check(raw: bytes, filename: str) -> None:
    end = outcome(raw, filename)
    if isinstance(end, Parsed):
        check_spans(end)
    else:
        assert SENTENCE.fullmatch(str(end)), str(end)


def outcome(raw: bytes, filename: str) -> Parsed | PermanentError:
    try:
        return read(raw, filename, LIMITS)
    except PermanentError as error:
        return error


def check_spans(parsed: Parsed) -> None:
    assert 0 < len(parsed.text) <= LIMITS.max_chars
    parsed.text.encode()
    assert "\0" not in parsed.text
    places = [*parsed.page_starts, *(heading.start for heading in parsed.outline)]
    assert all(0 <= place <= len(parsed.text) for place in places)
    assert parsed.page_starts == sorted(parsed.page_starts)
    assert all(SENTENCE.fullmatch(note) for note in parsed.notes), parsed.notes


@settings(CALM, max_examples=200)
@given(
    start=st.sampled_from(STARTS), rest=st.binary(max_size=300), name=st.sampled_from(NAMES.split())
)
def test_any_bytes_are_read_or_refused(start: bytes, rest: bytes, name: str) -> None:
    check(start + rest, name)


@settings(CALM, max_examples=100)
@given(text=st.text(max_size=200), name=st.sampled_from(NAMES.split()), wide=st.booleans())
def test_any_text_is_read_or_refused(text: str, name: str, wide: bool) -> None:
    check(text.encode("utf-16-le" if wide else "utf-8", "surrogatepass"), name)


@settings(CALM, max_examples=100)
@given(head=st.text(max_size=80), body=st.binary(max_size=200))
def test_any_message_is_read_or_refused(head: str, body: bytes) -> None:
    check(b"Message-ID: <1>\nFrom: a\nSubject: " + head.encode("utf-8", "replace") + body, "m.eml")
    check(MAIL + body + b"\r\n--x--\r\n", "m.eml")


SHARES = st.floats(0, 1, exclude_max=True)


@settings(CALM, max_examples=60)
@given(package=st.sampled_from(range(4)), share=SHARES, junk=st.binary(min_size=1, max_size=4))
def test_any_damage_to_an_office_file_is_read_or_refused(
    package: int, share: float, junk: bytes
) -> None:
    raw = PACKAGES[package]
    at = int(share * len(raw))
    check(raw[:at] + junk + raw[at + len(junk) :], "x.docx")
    check(raw[:at], "x.xlsx")


@settings(CALM, max_examples=40)
@given(package=st.sampled_from(range(4)), part=SHARES, share=SHARES, num_cut=st.integers(1, 400))
def test_any_damage_to_an_office_files_xml_is_read_or_refused(
    package: int, part: float, share: float, num_cut: int
) -> None:
    raw = PACKAGES[package]
    names = [name for name in names_in(raw) if name.endswith(("xml", "rels"))]
    name = names[int(part * len(names))]
    xml = part_of(raw, name)
    at = int(share * len(xml))
    check(with_parts(raw, {name: xml[:at] + xml[at + num_cut :]}), "x")
    odd = cycle(ODD_NUMBERS)
    check(with_parts(raw, {name: re.sub(rb'"\d+"', lambda _: next(odd), xml)}), "x")


ODD_NUMBERS = (b'"-1"', b'"99999999999999999999"', b'""', b'"x"', b'"8"', b'"1e999"')


def names_in(package: bytes) -> list[str]:
    with zipfile.ZipFile(io.BytesIO(package)) as archive:
        return archive.namelist()


@pytest.mark.parametrize("seed", range(4))
async def test_any_damage_to_a_pdf_is_read_or_refused(
    documents: Path, tmp_path: Path, seed: int
) -> None:
    """In the sandbox, for PDFium may crash, but must not take the worker along."""
    rng, path = Random(seed), tmp_path / "x.pdf"
    async with Sandbox(ParseLimits(cpu_s=10, wall_s=15)) as sandbox:
        for name in ("pdflatex-outline.pdf", "pdflatex-forms.pdf", "annotated_pdf.pdf"):
            raw = bytearray((documents / "pdf" / name).read_bytes())
            for _ in range(20):
                raw[rng.randrange(20, len(raw))] = rng.randrange(256)
            path.write_bytes(raw)
            with suppress(PermanentError):
                check_spans(await sandbox.read(path, "x.pdf"))
