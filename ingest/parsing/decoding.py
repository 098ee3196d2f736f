"""Bytes to text: strict UTF-8, byte order marks, then detection over the whole file.

Knows nothing of markup. A guess that is not well founded is refused, never made in silence.
"""

import codecs
import re
from dataclasses import dataclass
from itertools import pairwise

from charset_normalizer import from_bytes

from ingest.api import PermanentError
from ingest.parsing.wide import bom_encoding, wide_encoding

SAMPLE_BYTES = 256 * 1024
FEW_BYTES = 32
MAX_CHAOS = 0.1
WESTERN = "cp1252"
WIDER = {
    "ascii": WESTERN,
    "iso8859-1": WESTERN,
    "iso8859-9": "cp1254",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "big5": "cp950",
}
"""What is meant where these are declared, as browsers know."""
SEVEN_BIT = frozenset({"iso2022_jp", "iso2022_jp_2", "iso2022_jp_ext", "iso2022_kr", "hz", "utf-7"})
ESCAPES = ((b"\x1b$)C", "iso2022_kr"), (b"\x1b$B", "iso2022_jp"), (b"\x1b$@", "iso2022_jp"))
NO_CHARSETS = frozenset(
    {"idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape", "mbcs", "oem"}
)

NON_ASCII_LINE = re.compile(rb"[^\n]*[\x80-\xff][^\n]*\n?")
NON_ASCII = re.compile(rb"[\x80-\xff]")
SURROGATE = re.compile("[\ud800-\udfff]")
STANDALONE = frozenset("àÀéèêÉóòöÖåÅäÄøØæÆªº")
RARE = frozenset("ÿŸþÞ")
WORD = re.compile(r"[^\W\d_]+")
SYMBOL_AFTER_LETTER = re.compile(r"(?![\x00-\x7f])\w(?![\x00-\x7f])\W")


@dataclass(frozen=True, slots=True)
class Decoded:
    text: str
    encoding: str


def decode(raw: bytes, *, declared: str | None = None) -> Decoded:
    """The text, without byte order mark. `declared` is an encoding that the file names itself.

    Raises PermanentError with the offset of the first byte that cannot be understood.
    """
    marked = bom_encoding(raw)
    if marked is not None:
        return Decoded(_strict(raw, marked), marked)
    wide = wide_encoding(raw) if b"\x00" in raw else None
    if wide is not None:
        return Decoded(_strict(raw, wide), wide)
    escaped = _escaped(raw, declared)
    if escaped is not None:
        return escaped
    try:
        return Decoded(raw.decode("utf-8"), "utf-8")
    except UnicodeDecodeError as error:
        return _legacy(raw, error, declared)


def without_surrogates(text: str) -> str:
    """Lone surrogates, which no encoding can store, become U+FFFD."""
    return SURROGATE.sub("\ufffd", text)


def _strict(raw: bytes, encoding: str) -> str:
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError as error:
        num_skipped = len(codecs.BOM_UTF8) if encoding == "utf-8-sig" else 0
        raise PermanentError(
            f"The text starts as {encoding.removesuffix('-sig').upper()} but is broken "
            f"at byte {error.start + num_skipped}."
        ) from error
    return without_surrogates(text)


def _escaped(raw: bytes, declared: str | None) -> Decoded | None:
    """Japanese, Korean and Chinese mail in seven bits, which is also valid UTF-8."""
    names = [_codec(declared)] if declared else []
    names += [encoding for mark, encoding in ESCAPES if mark in raw]
    for encoding in names:
        text = _try(raw, encoding) if encoding in SEVEN_BIT and raw.isascii() else None
        if text is not None:
            return Decoded(text, encoding)
    return None


def _legacy(raw: bytes, error: UnicodeDecodeError, declared: str | None) -> Decoded:
    names = (WIDER.get(_codec(declared), ""), _codec(declared)) if declared else ()
    for encoding in filter(None, names):
        text = _try(raw, encoding)
        if text is not None:
            return Decoded(text, encoding)
    broken = PermanentError(
        f"The text is neither valid UTF-8 (byte {error.start} is 0x{raw[error.start]:02x}) nor "
        "clearly in another encoding. Save it as UTF-8 and upload it again."
    )
    if _mostly_utf8(raw):
        raise PermanentError(
            f"The text is UTF-8 but broken at byte {error.start} "
            f"(0x{raw[error.start]:02x}). Save it as UTF-8 and upload it again."
        )
    sample = _sample(raw)
    if len(NON_ASCII.findall(sample)) < FEW_BYTES:
        text = _try(raw, WESTERN)
        if text is None or not _plausible(text):
            raise broken
        return Decoded(text, WESTERN)
    return _detect(raw, sample, broken)


def _detect(raw: bytes, sample: bytes, broken: PermanentError) -> Decoded:
    matches = list(from_bytes(sample, threshold=MAX_CHAOS))
    recognised = [match for match in matches if match.coherence > 0]
    for match in recognised:
        text = _try(raw, match.encoding)
        if text is not None:
            return Decoded(text, match.encoding)
    raise broken


def _sample(raw: bytes) -> bytes:
    """Every line with a byte beyond ASCII, or an even selection of them if that is a lot."""
    lines = NON_ASCII_LINE.findall(raw)
    stride = sum(map(len, lines)) // SAMPLE_BYTES + 1
    return b"".join(line[:SAMPLE_BYTES] for line in lines[::stride])


def _mostly_utf8(raw: bytes) -> bool:
    """More of what is beyond ASCII is whole UTF-8 sequences than is not."""
    lenient = raw.decode("utf-8", "replace")
    num_broken = lenient.count("\ufffd") - raw.count(b"\xef\xbf\xbd")
    num_whole = sum(1 for character in lenient if character > "\x7f") - num_broken
    return num_whole >= num_broken


def _plausible(text: str) -> bool:
    """Read as Western, what is beyond ASCII sits where writing would put it."""
    words = (match[0] for match in WORD.finditer(text))
    return not SYMBOL_AFTER_LETTER.search(text) and all(
        _is_western(word) for word in words if not word.isascii()
    )


def _is_western(word: str) -> bool:
    if RARE & set(word):
        return False
    shouts = any(a.islower() and b.isupper() and b > "\x7f" for a, b in pairwise(word))
    return not shouts and (word in STANDALONE or any(c.isascii() for c in word))


def _try(raw: bytes, encoding: str) -> str | None:
    try:
        return without_surrogates(raw.decode(encoding))
    except UnicodeError:
        return None


def _codec(label: str) -> str:
    """Python's name of a declared encoding; empty for an unknown one and for what is none."""
    try:
        name = codecs.lookup(label).name
        "".encode(name)
    except (LookupError, ValueError):
        return ""
    return "" if name in NO_CHARSETS else name
