"""A file's kind comes from its content, and what cannot be read is named."""

import io
import zipfile

import pytest

from ingest.api import PermanentError
from ingest.parsing.sniff import Kind, sniff
from tests.ingest.parsing.office_files import docx_bytes, pptx_bytes, xlsx_bytes


def zip_of(name: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(name, "x")
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("raw", "filename", "kind"),
    [
        (b"%PDF-1.7\n...", "report", Kind.PDF),
        (b"\n\n%PDF-1.4", "report.txt", Kind.PDF),
        (b"  <!DOCTYPE html><p>x", "page", Kind.HTML),
        (b"<!-- c --><html>", "page.txt", Kind.HTML),
        (b"<p>fragment</p>", "page.htm", Kind.HTML),
        ("<html>".encode("utf-16"), "page", Kind.HTML),
        (b"# Title", "README.MD", Kind.MARKDOWN),
        (b"# Title", "script.py", Kind.CODE),
        (b'{"a": 1}', "data.json", Kind.JSON),
        (b' {"a": 1}', "data.txt", Kind.JSON),
        (b"[1] Smith, J.", "references", Kind.TEXT),
        (b'{"a": 1}\n', "data.jsonl", Kind.JSON_LINES),
        (b"a,b\n1,2\n", "data.csv", Kind.TABLE),
        (b"Message-ID: <1>\nSubject: x\n\nbody", "saved.txt", Kind.MAIL),
        (b"Subject: x\n\nbody", "saved.eml", Kind.MAIL),
        (b"From: the desk of Ann\nTo: whom\n\nbody", "letter.txt", Kind.TEXT),
        (b"just text", "lie.eml", Kind.TEXT),
        (docx_bytes(lambda document: None), "letter.txt", Kind.DOCX),
        (pptx_bytes(lambda slides: None), "letter.docx", Kind.PPTX),
        (xlsx_bytes(lambda book: None), "letter.pdf", Kind.XLSX),
        (b"<table><tr><td>x</table>", "report.xls", Kind.TEXT),
        (b"<html><table><tr><td>x</table>", "report.xls", Kind.HTML),
        ("no mark at all\n".encode("utf-16-le"), "wide.txt", Kind.TEXT),
        ("<html>no mark</html>".encode("utf-32-be"), "wide", Kind.HTML),
        (b"caf\xe9", "latin.txt", Kind.TEXT),
        ("plain".encode("utf-16"), "wide.txt", Kind.TEXT),
        (b"not a pdf at all", "lie.pdf", Kind.TEXT),
    ],
)
def test_content_decides_before_the_name(raw: bytes, filename: str, kind: Kind) -> None:
    assert sniff(raw, filename) is kind


@pytest.mark.parametrize(
    ("raw", "filename", "cause"),
    [
        (b"", "empty.txt", r"empty \(0 bytes\)"),
        (b"\x89PNG\r\n\x1a\n\x00\x00", "photo.txt", "PNG image"),
        (b"PK\x03\x04\x14\x00", "letter.docx", "ZIP archive, but it is broken"),
        (zip_of("a.txt"), "letter.docx", "ZIP archive; upload the files in it one by one"),
        (b"\x00" * 257 + b"ustar", "a.tar", "a TAR archive"),
        (b"RIFF\x00\x00\x00\x00WEBP", "a", "a WebP image"),
        (b"{\\rtf1 x}", "a.doc", "RTF document; save it as .docx"),
        (b"\x7fELF\x02\x01", "a.out", "program"),
        (bytes(range(256)) * 4, "blob.bin", r"binary data of an unknown type.*\.bin"),
        (b"text with a \x00 in it", "t.txt", r"binary data of an unknown type.*\.txt"),
        (b"\x01\x02\x03\x04" * 9, "noise", r"binary data of an unknown type\."),
    ],
)
def test_what_cannot_be_read_is_named(raw: bytes, filename: str, cause: str) -> None:
    with pytest.raises(PermanentError, match=cause):
        sniff(raw, filename)
