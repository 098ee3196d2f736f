"""Which kind of file some bytes are, by content first and name second. Parses nothing."""

import re
from enum import StrEnum
from pathlib import PurePath

from ingest.api import PermanentError

HEAD_BYTES = 4096
CONTROL_BYTES = bytes(set(range(32)) - set(b"\t\n\v\f\r\x1b\x1a\b"))
CONTROL_SHARE = 0.001


class Kind(StrEnum):
    TEXT = "text"
    MARKDOWN = "markdown"
    HTML = "html"
    PDF = "pdf"


BOMS = (
    (b"\xff\xfe\x00\x00", "utf-32"),
    (b"\x00\x00\xfe\xff", "utf-32"),
    (b"\xef\xbb\xbf", "utf-8-sig"),
    (b"\xff\xfe", "utf-16"),
    (b"\xfe\xff", "utf-16"),
)

MAGIC = (
    (b"PK\x03\x04", "a ZIP archive or an Office document"),
    (b"PK\x05\x06", "an empty ZIP archive"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old Office document"),
    (b"\x89PNG\r\n\x1a\n", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF87a", "a GIF image"),
    (b"GIF89a", "a GIF image"),
    (b"II*\x00", "a TIFF image"),
    (b"MM\x00*", "a TIFF image"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"BZh", "a bzip2 archive"),
    (b"\xfd7zXZ\x00", "an xz archive"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
    (b"\x28\xb5\x2f\xfd", "a Zstandard archive"),
    (b"\x7fELF", "a program"),
    (b"MZ\x90\x00", "a program"),
    (b"SQLite format 3\x00", "an SQLite database"),
    (b"ID3", "an MP3 recording"),
    (b"OggS", "an Ogg recording"),
    (b"{\\rtf", "an RTF document"),
)

HTML_START = re.compile(rb"\s*(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html|head|body)\b", re.I | re.S)
HTML_SUFFIXES = frozenset({".html", ".htm", ".xhtml"})
MARKDOWN_SUFFIXES = frozenset({".md", ".markdown", ".mdown", ".mkd"})


def bom_encoding(raw: bytes) -> str | None:
    """The encoding that a byte order mark at the start names."""
    return next((encoding for bom, encoding in BOMS if raw.startswith(bom)), None)


def sniff(raw: bytes, filename: str) -> Kind:
    """Raises PermanentError for an empty file and for one that is not text, HTML or PDF."""
    if not raw:
        raise PermanentError("The file is empty (0 bytes).")
    head = raw[:HEAD_BYTES]
    if b"%PDF-" in head[:1024]:
        return Kind.PDF
    encoding = bom_encoding(head)
    if encoding is None:
        _refuse_binary(raw, filename)
    return _text_kind(head if encoding is None else _as_utf8(head, encoding), filename)


def _refuse_binary(raw: bytes, filename: str) -> None:
    for magic, name in MAGIC:
        if raw.startswith(magic):
            raise PermanentError(f"The file is {name}; this type cannot be read.")
    num_controls = len(raw) - len(raw.translate(None, CONTROL_BYTES))
    if b"\x00" in raw or num_controls > CONTROL_SHARE * len(raw):
        suffix = PurePath(filename).suffix
        named = f" with the name suffix {suffix}" if suffix else ""
        raise PermanentError(f"The file is binary data of an unknown type{named}.")


def _text_kind(head: bytes, filename: str) -> Kind:
    suffix = PurePath(filename).suffix.lower()
    if suffix in MARKDOWN_SUFFIXES:
        return Kind.MARKDOWN
    if suffix in HTML_SUFFIXES or HTML_START.match(head):
        return Kind.HTML
    return Kind.TEXT


def _as_utf8(head: bytes, encoding: str) -> bytes:
    return head[: len(head) // 4 * 4].decode(encoding, "ignore").encode()
