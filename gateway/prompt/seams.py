"""Rewrites a splitting expression and its texts so that no look-ahead is needed; knows no tokens.

Byte-level tokenizers split a run of blanks before its last one, which then belongs to what follows:
`\\s+(?!\\S)`. For that look-ahead tiktoken takes a backtracking engine that is half as fast. With
a mark, a seam, before the last blank of each run a plain `\\s+` splits in the same places.
"""

import re
from dataclasses import dataclass

LOOK_AHEAD = r"\s+(?!\S)|\s+"
LOOK_AHEAD_OR_DIGIT = r"\s+(?![^\s\p{N}])|\s+"
LINE_ENDS = r"\s*[\r\n]+"

BLANKS = b"\t\n\v\f\r "
FLAT = bytes.maketrans(BLANKS, b" " * len(BLANKS))
OTHER_BLANKS = re.compile("[\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]")


@dataclass(frozen=True, slots=True)
class Seams:
    """`pattern` splits texts that `mark` has marked as the original splits them unmarked."""

    pattern: str
    before_digits: bool
    before_line_ends: bool
    """Whether a run that ends with a line's end is split like any other."""

    @classmethod
    def of(cls, pattern: str) -> "Seams | None":
        """None for an expression of another form."""
        for tail, before_digits in ((LOOK_AHEAD, True), (LOOK_AHEAD_OR_DIGIT, False)):
            head = pattern.removesuffix(tail)
            if head != pattern and "(?=" not in head and "(?!" not in head and "(?<" not in head:
                return cls(head + r"\s+", before_digits, LINE_ENDS not in head)
        return None

    def mark(self, text: str, raw: bytes, seam: bytes) -> str | None:
        """The text with its seams; `raw` is its UTF-8. None: blanks or digits that only the
        original expression tells apart."""
        flat = raw.translate(FLAT)
        if len(raw) > len(text) and OTHER_BLANKS.search(text):
            return None
        at = flat.find(b"  ")
        if at < 0:
            return text
        pieces: list[bytes] = []
        start, size = 0, len(raw)
        while at >= 0:
            stop = at + 2
            while stop < size and flat[stop] == 0x20:
                stop += 1
            if stop == size:
                break
            follows = raw[stop]
            if follows >= 0x80:
                return None
            if self._is_split(raw[stop - 1], follows):
                pieces.append(raw[start : stop - 1])
                start = stop - 1
            at = flat.find(b"  ", stop)
        if not pieces:
            return text
        pieces.append(raw[start:])
        return seam.join(pieces).decode()

    def _is_split(self, blank: int, follows: int) -> bool:
        if not self.before_digits and 0x30 <= follows <= 0x39:
            return False
        return self.before_line_ends or blank not in b"\r\n"
