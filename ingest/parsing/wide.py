"""Texts of two or four bytes a character: told by their mark, or by what their bytes look like."""

import unicodedata

BOMS = (
    (b"\xff\xfe\x00\x00", "utf-32"),
    (b"\x00\x00\xfe\xff", "utf-32"),
    (b"\xef\xbb\xbf", "utf-8-sig"),
    (b"\xff\xfe", "utf-16"),
    (b"\xfe\xff", "utf-16"),
)
WIDTHS = (("utf-32-le", 4), ("utf-32-be", 4), ("utf-16-le", 2), ("utf-16-be", 2))
SAMPLE_BYTES = 1 << 16
MIN_CHARS = 4
NO_TEXT = frozenset({"Cc", "Cn", "Co", "Cs"})
WHITE = frozenset("\t\n\v\f\r")
PAGE_BITS = 8
"""A wrong order of bytes scatters a text over many pages of 256 characters."""


def bom_encoding(raw: bytes) -> str | None:
    """The encoding that a byte order mark at the start names."""
    return next((encoding for bom, encoding in BOMS if raw.startswith(bom)), None)


def wide_encoding(raw: bytes) -> str | None:
    """UTF-16 or UTF-32 without a mark; None for what is neither, or too short to tell."""
    fitting = []
    for encoding, width in WIDTHS:
        if len(raw) % width or len(raw) < MIN_CHARS * width:
            continue
        text = _sample(raw, encoding)
        if text is not None and not any(map(_is_no_text, text)):
            fitting.append((len({ord(letter) >> PAGE_BITS for letter in text}), encoding))
    return min(fitting)[1] if fitting else None


def _sample(raw: bytes, encoding: str) -> str | None:
    """Strictly, but for a pair of units that the sample's end cuts."""
    sample = raw[:SAMPLE_BYTES]
    try:
        return sample.decode(encoding)
    except UnicodeDecodeError as error:
        is_cut = len(raw) > SAMPLE_BYTES and error.start >= len(sample) - 2
        return sample[: error.start].decode(encoding) if is_cut else None


def _is_no_text(letter: str) -> bool:
    return letter not in WHITE and unicodedata.category(letter) in NO_TEXT
