"""A file's kind comes from its content, and what cannot be read is named."""

import pytest

from ingest.api import PermanentError
from ingest.parsing.sniff import Kind, sniff


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
        (b"# Title", "script.py", Kind.TEXT),
        (b'{"a": 1}', "data.json", Kind.TEXT),
        (b"a,b\n1,2\n", "data.csv", Kind.TEXT),
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
        (b"PK\x03\x04\x14\x00", "letter.docx", "ZIP archive or an Office document"),
        (b"\x7fELF\x02\x01", "a.out", "program"),
        (bytes(range(256)) * 4, "blob.bin", r"binary data of an unknown type.*\.bin"),
        (b"text with a \x00 in it", "t.txt", r"binary data of an unknown type.*\.txt"),
        (b"\x01\x02\x03\x04" * 9, "noise", r"binary data of an unknown type\."),
    ],
)
def test_what_cannot_be_read_is_named(raw: bytes, filename: str, cause: str) -> None:
    with pytest.raises(PermanentError, match=cause):
        sniff(raw, filename)
