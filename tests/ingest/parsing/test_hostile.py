"""Files made to do harm end with a sentence, soon, and cost no more than the limits."""

import io
import os
import struct
import time
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from ingest.api import PermanentError
from ingest.parsing.ooxml import MAX_DEPTH
from ingest.parsing.parsed import ParseLimits
from ingest.parsing.sandbox import Sandbox
from tests.ingest.parsing.office_files import (
    docx_bytes,
    part_of,
    pptx_bytes,
    read,
    with_parts,
    xlsx_bytes,
)

DOCUMENT, SHEET = "word/document.xml", "xl/worksheets/sheet1.xml"
LAUGHS = b"".join(b'<!ENTITY l%d "%s">' % (n + 1, b"&l%d;" % n * 10) for n in range(9))
DOCX = docx_bytes(lambda document: document.add_paragraph("words"))
XLSX = xlsx_bytes(lambda book: book.worksheets[0].append(["words"]))


def docx_of(xml: bytes) -> bytes:
    return with_parts(DOCX, {DOCUMENT: xml})


@pytest.mark.parametrize(
    ("xml", "cause"),
    [
        (b'<!DOCTYPE d [<!ENTITY l0 "ha">' + LAUGHS + b"]><d>&l9;</d>", "declares XML entities"),
        (b'<!DOCTYPE d [<!ENTITY x SYSTEM "file:///etc/passwd">]><d>&x;</d>', "XML entities"),
        (b'<!DOCTYPE d SYSTEM "http://127.0.0.1:9/x.dtd"><d/>', "declares XML entities"),
        (b"<d>" * (MAX_DEPTH + 1), f"deeper than {MAX_DEPTH} levels"),
        (b"<d>&x;</d>", "no valid XML"),
        (b'<?xml version="1.0" encoding="hex"?><d/>', "no valid XML"),
        (b"<d>", "no valid XML"),
        (b"", "no valid XML"),
        (b"<d/>", "has no text"),
    ],
)
def test_xml_that_office_never_writes_is_refused(xml: bytes, cause: str) -> None:
    with pytest.raises(PermanentError, match=cause):
        read(docx_of(xml))


def test_a_bomb_is_refused_by_what_it_declares_before_it_is_unpacked() -> None:
    bomb = docx_of(b"<d>" + b" " * (64 << 20) + b"</d>")
    started = time.process_time()
    with pytest.raises(PermanentError, match=r"unpacks to \d+ times its size; the limit is 200"):
        read(bomb)
    with pytest.raises(PermanentError, match="more than 1 MiB"):
        read(bomb, limits=ParseLimits(max_unpacked_bytes=1 << 20))
    assert time.process_time() - started < 1


def test_a_bomb_that_lies_about_its_size_is_not_unpacked_beyond_the_lie() -> None:
    bomb = bytearray(docx_of(b"<d>" + b" " * (8 << 20) + b"</d>"))
    size = struct.pack("<I", (8 << 20) + 7)
    assert size in bomb
    lie = bytes(bomb).replace(size, struct.pack("<I", 100))
    with pytest.raises(PermanentError, match=r"cannot be unpacked|no valid XML"):
        read(lie)


def test_archives_in_documents_are_not_opened_but_told() -> None:
    parsed = read(with_parts(DOCX, {"word/embeddings/inner.zip": DOCX}))
    assert parsed.notes[1:] == ["Did not read 1 embedded file."]


def test_a_locked_part_and_a_strange_packing_are_refused() -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_LZMA) as package:
        for name in ("[Content_Types].xml", "_rels/.rels", DOCUMENT):
            package.writestr(name, part_of(DOCX, name))
    with pytest.raises(PermanentError, match="in a way that Office never does"):
        read(buffer.getvalue())
    flag = struct.pack("<4sHHHH", b"PK\x01\x02", 20, 20, 1, 8)
    plain = zipfile.ZipFile(io.BytesIO(XLSX)).infolist()[0]
    old = struct.pack(
        "<4sBBHHH", b"PK\x01\x02", plain.create_version, plain.create_system, 20, 0, 8
    )
    new = flag[:4] + old[4:8] + struct.pack("<HH", 1, 8)
    with pytest.raises(PermanentError, match="protected by a password"):
        read(XLSX.replace(old, new))


def test_rows_of_far_apart_cells_cost_what_they_hold() -> None:
    rows = b"".join(
        b'<row r="%d"><c r="XFD%d"><v>1</v></c></row>' % (n, n) for n in range(1, 5_000)
    )
    sheet = b'<worksheet xmlns="x"><sheetData>' + rows + b"</sheetData></worksheet>"
    parsed = read(with_parts(XLSX, {SHEET: sheet}))
    assert len(parsed.text) < 200_000
    assert parsed.text.count("(16383 empty cells) | 1") == 4_999


def test_text_beyond_the_limit_is_refused_while_it_is_read() -> None:
    limits = ParseLimits(max_chars=1_000, max_pages=3)
    long = docx_bytes(lambda document: [document.add_paragraph("x" * 99) for _ in range(20)])
    many = pptx_bytes(lambda p: [p.slides.add_slide(p.slide_layouts[6]) for _ in range(4)])
    for raw, cause in ((long, "more than 1000 characters"), (many, "4 slides; the limit is 3")):
        with pytest.raises(PermanentError, match=cause):
            read(raw, limits=limits)


OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(504)


@pytest.mark.parametrize(
    ("raw", "cause"),
    [
        (OLE + "EncryptedPackage".encode("utf-16-le"), "protected by a password"),
        (OLE + "WordDocument".encode("utf-16-le"), "old Word document"),
        (OLE + "Workbook".encode("utf-16-le"), "old Excel workbook"),
        (OLE + "PowerPoint Document".encode("utf-16-le"), "old PowerPoint"),
        (OLE + "__substg1.0_0037001F".encode("utf-16-le"), r"Outlook message \(.msg\)"),
        (OLE, "old Office document"),
        (with_parts(XLSX, {"xl/workbook.bin": b""}), r"binary Excel workbook \(.xlsb\)"),
        (DOCX[:1000], "broken"),
        (b"PK\x03\x04", "broken"),
    ],
)
def test_other_office_files_are_named(raw: bytes, cause: str) -> None:
    with pytest.raises(PermanentError, match=cause):
        read(raw, "letter.docx")


def pdf(objects: list[bytes]) -> bytes:
    body, offsets = b"%PDF-1.4\n", []
    for number, content in enumerate(objects, start=1):
        offsets.append(len(body))
        body += b"%d 0 obj\n%s\nendobj\n" % (number, content)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    head = b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    trailer = b"trailer<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF"
    return body + head + table + trailer % (len(objects) + 1, len(body))


def flate(content: bytes, times: int = 1) -> bytes:
    packer = zlib.compressobj(1)
    packed = b"".join([packer.compress(content) for _ in range(times)] + [packer.flush()])
    return b"<</Filter/FlateDecode/Length %d>>stream\n%s\nendstream" % (len(packed), packed)


CATALOG = b"<</Type/Catalog/Pages 2 0 R>>"
ONE_PAGE = b"<</Type/Pages/Kids[3 0 R]/Count 1>>"
PAGE = b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]/Contents 4 0 R/Resources<<%s>>>>"
FORM = b"<</Type/XObject/Subtype/Form/BBox[0 0 9 9]/Resources<</XObject<</X 5 0 R>>>>/Length 5>>"
DRAWS_ITSELF = FORM + b"stream\n/X Do\nendstream"
MANY_PAGES = b"<</Type/Pages/Kids[" + b"3 0 R " * 100_000 + b"]/Count 100000>>"


def bad_pdfs() -> Iterator[tuple[bytes, str]]:
    """With the cause that each must end with."""
    yield pdf([CATALOG, b"<</Type/Pages/Kids[2 0 R 2 0 R]/Count 9>>"]), "9 page.* could be read"
    yield pdf([CATALOG, MANY_PAGES, PAGE % b"", flate(b"")]), "100000 pages; the limit is 10000"
    itself = PAGE % b"/XObject<</X 5 0 R>>"
    yield pdf([CATALOG, ONE_PAGE, itself, flate(b"/X Do"), DRAWS_ITSELF]), "No text on any"
    bomb = flate(bytes(1 << 20), times=300)
    yield pdf([CATALOG, ONE_PAGE, PAGE % b"", bomb]), "more than 300 MiB of memory"
    yield pdf([CATALOG])[:-60], "broken"


@pytest.mark.timeout(60)
async def test_hostile_files_end_in_the_sandbox_and_leave_nothing(tmp_path: Path) -> None:
    limits = ParseLimits(memory_bytes=300 << 20, cpu_s=8, wall_s=20)
    files = [*bad_pdfs(), (b"<b>" * 2_500_000 + b"x", "too much memory")]
    async with Sandbox(limits) as sandbox:
        for index, (raw, cause) in enumerate(files):
            path = tmp_path / f"{index}"
            path.write_bytes(raw)
            with pytest.raises(PermanentError, match=cause):
                await sandbox.read(path, f"x-{index}.html")
        (tmp_path / "good").write_bytes(DOCX)
        assert (await sandbox.read(tmp_path / "good", "x.docx")).text == "words"
    assert sorted(os.listdir(tmp_path)) == sorted([*map(str, range(len(files))), "good"])
