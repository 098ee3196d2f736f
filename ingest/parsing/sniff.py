"""Which kind of file some bytes are, by content first and name second. Parses nothing."""

import io
import re
import zipfile
from enum import StrEnum
from pathlib import PurePath

from ingest.api import PermanentError, UnsupportedFile
from ingest.parsing import code
from ingest.parsing.ooxml import BROKEN_ZIP
from ingest.parsing.wide import bom_encoding, wide_encoding

HEAD_BYTES = 4096
CONTROL_BYTES = bytes(set(range(32)) - set(b"\t\n\v\f\r\x1b\x1a\b"))
CONTROL_SHARE = 0.001


class Kind(StrEnum):
    TEXT = "text"
    MARKDOWN = "markdown"
    HTML = "html"
    CODE = "code"
    TABLE = "table"
    JSON = "json"
    JSON_LINES = "json lines"
    MAIL = "mail"
    PDF = "pdf"
    DOCX = "docx"
    PPTX = "pptx"
    XLSX = "xlsx"


ZIP, OLE = b"PK\x03\x04", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"

MAGIC = (
    (b"PK\x05\x06", "an empty ZIP archive"),
    (b"\x89PNG\r\n\x1a\n", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF87a", "a GIF image"),
    (b"GIF89a", "a GIF image"),
    (b"II*\x00", "a TIFF image"),
    (b"MM\x00*", "a TIFF image"),
    (b"8BPS\x00", "a Photoshop image"),
    (b"\x00\x00\x01\x00", "an icon"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"BZh", "a bzip2 archive"),
    (b"\xfd7zXZ\x00", "an xz archive"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
    (b"\x28\xb5\x2f\xfd", "a Zstandard archive"),
    (b"Rar!\x1a\x07", "a RAR archive"),
    (b"\x7fELF", "a program"),
    (b"MZ\x90\x00", "a program"),
    (b"\xca\xfe\xba\xbe", "a program"),
    (b"\xcf\xfa\xed\xfe", "a program"),
    (b"\x00asm", "a program"),
    (b"SQLite format 3\x00", "an SQLite database"),
    (b"PAR1", "a Parquet table"),
    (b"ID3", "an MP3 recording"),
    (b"OggS", "an Ogg recording"),
    (b"fLaC", "a FLAC recording"),
    (b"{\\rtf", "an RTF document; save it as .docx"),
)
MAGIC_INSIDE = (
    (8, b"WEBP", "a WebP image"),
    (8, b"WAVE", "a WAV recording"),
    (8, b"AVI ", "a video"),
    (4, b"ftyp", "a video or a photograph"),
    (257, b"ustar", "a TAR archive"),
)
OLE_STREAMS = (
    ("EncryptedPackage", "The Office document is protected by a password; upload it without one."),
    ("WordDocument", "The file is an old Word document (.doc); save it as .docx."),
    ("Workbook", "The file is an old Excel workbook (.xls); save it as .xlsx."),
    ("PowerPoint Document", "The file is an old PowerPoint file (.ppt); save it as .pptx."),
    ("__substg1.0_", "The file is an Outlook message (.msg); save it as .eml."),
)
OFFICE_FOLDERS = (("word/", Kind.DOCX), ("ppt/", Kind.PPTX), ("xl/", Kind.XLSX))
OTHER_ZIPS = (
    ("application/epub", "an EPUB book"),
    ("application/vnd.oasis.opendocument", "an OpenDocument file; save it as an Office document"),
)

HTML_START = re.compile(
    rb"\s*(?:<\?xml[^>]{0,200}\?>\s*)?(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html|head|body)\b",
    re.I | re.S,
)
JSON_START = re.compile(rb'\s*(?:\{\s*"[^"\n]{0,200}"\s*:|\[\s*[\[{])')
HEADER_LINE = re.compile(rb"([A-Za-z][A-Za-z0-9-]{1,60}):(?:[ \t]|\r?\n[ \t])")
MAIL_MARKS = frozenset({b"mime-version", b"message-id", b"received", b"return-path"})
MAIL_HEADERS = MAIL_MARKS | {b"from", b"to", b"subject", b"date", b"content-type", b"delivered-to"}
SUFFIXES = {
    Kind.HTML: (".html", ".htm", ".xhtml"),
    Kind.MARKDOWN: (".md", ".markdown", ".mdown", ".mkd"),
    Kind.TABLE: (".csv", ".tsv", ".tab"),
    Kind.JSON: (".json", ".geojson", ".ipynb"),
    Kind.JSON_LINES: (".jsonl", ".ndjson"),
    Kind.CODE: tuple(code.SUFFIXES),
}
KINDS = {suffix: kind for kind, suffixes in SUFFIXES.items() for suffix in suffixes}


def sniff(raw: bytes, filename: str) -> Kind:
    """Raises PermanentError for an empty file and for one of a kind that is not read."""
    if not raw:
        raise PermanentError("The file is empty (0 bytes).")
    head = raw[:HEAD_BYTES]
    if b"%PDF-" in head[:1024]:
        return Kind.PDF
    if raw.startswith(ZIP):
        return _zip_kind(raw)
    if raw.startswith(OLE):
        raise UnsupportedFile(_ole_cause(raw))
    suffix = PurePath(filename).suffix.lower()
    if _is_mail(head, suffix):
        return Kind.MAIL
    encoding = bom_encoding(head)
    if encoding is None:
        encoding = _wide_or_refused(raw, suffix)
    return _text_kind(head if encoding is None else _as_utf8(head, encoding), suffix)


def _zip_kind(raw: bytes) -> Kind:
    try:
        archive = zipfile.ZipFile(io.BytesIO(raw))
    except BROKEN_ZIP as error:
        raise PermanentError("The file starts as a ZIP archive, but it is broken.") from error
    names = {name.lstrip("/") for name in archive.namelist()}
    if "xl/workbook.bin" in names:
        raise UnsupportedFile("The file is a binary Excel workbook (.xlsb); save it as .xlsx.")
    for folder, kind in OFFICE_FOLDERS:
        if "[Content_Types].xml" in names and any(name.startswith(folder) for name in names):
            return kind
    start = raw[:HEAD_BYTES].decode("latin-1")
    for mark, named in OTHER_ZIPS:
        if f"mimetype{mark}" in start:
            raise UnsupportedFile(f"The file is {named}; this type cannot be read.")
    raise UnsupportedFile("The file is a ZIP archive; upload the files in it one by one.")


def _ole_cause(raw: bytes) -> str:
    """By the names of what lies in it, which are UTF-16."""
    for name, cause in OLE_STREAMS:
        if name.encode("utf-16-le") in raw:
            return cause
    return "The file is an old Office document; this type cannot be read."


def _is_mail(head: bytes, suffix: str) -> bool:
    """Whether it begins with headers; without the name, some that only mail programs write."""
    names = set[bytes]()
    for line in head.split(b"\n"):
        found = HEADER_LINE.match(line) or HEADER_LINE.match(line + b"\n ")
        if found is not None:
            names.add(found[1].lower())
        elif not line.startswith((b" ", b"\t")):
            break
    known = names & MAIL_HEADERS
    return bool(known) if suffix == ".eml" else len(known) > 1 and bool(names & MAIL_MARKS)


def _wide_or_refused(raw: bytes, suffix: str) -> str | None:
    named = next((name for magic, name in MAGIC if raw.startswith(magic)), None) or next(
        (name for at, magic, name in MAGIC_INSIDE if raw[at : at + len(magic)] == magic), None
    )
    if named is not None:
        raise UnsupportedFile(f"The file is {named}; this type cannot be read.")
    num_controls = len(raw) - len(raw.translate(None, CONTROL_BYTES))
    if b"\x00" not in raw and num_controls <= CONTROL_SHARE * len(raw):
        return None
    encoding = wide_encoding(raw) if b"\x00" in raw else None
    if encoding is None:
        with_suffix = f" with the name suffix {suffix}" if suffix else ""
        raise UnsupportedFile(f"The file is binary data of an unknown type{with_suffix}.")
    return encoding


def _text_kind(head: bytes, suffix: str) -> Kind:
    if suffix in KINDS:
        return KINDS[suffix]
    if HTML_START.match(head):
        return Kind.HTML
    return Kind.JSON if JSON_START.match(head) else Kind.TEXT


def _as_utf8(head: bytes, encoding: str) -> bytes:
    return head[: len(head) // 4 * 4].decode(encoding, "ignore").encode()
