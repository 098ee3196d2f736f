"""What kind each character is, asked of tiktoken's own regular expressions.

So no two versions of Unicode can disagree. Knows no tokens.
"""

from enum import IntEnum

import numpy as np
import tiktoken
from numpy.typing import NDArray

from gateway.prompt.expressions import NEVER

Kinds = NDArray[np.uint8]
"""The kind of each code point below CODE_POINTS."""

CODE_POINTS = 0x40000
"""Planes 0 to 3; what lies above is unsure."""

SURROGATES = range(0xD800, 0xE000)


class Kind(IntEnum):
    """Blanks are SPACE and above, up to LINE_END. UNSURE: the text is for others to split."""

    SIGN = 0
    LETTER = 1
    NUMBER = 2
    SPACE = 3
    BLANK = 4
    LINE_END = 5
    UNSURE = 6


def kinds() -> Kinds:
    """Slow: a third of a second."""
    every = "".join(chr(point) for point in range(CODE_POINTS) if point not in SURROGATES)
    table = np.full(CODE_POINTS, Kind.SIGN, np.uint8)
    for pattern, kind in ((r"\p{L}+", Kind.LETTER), (r"\p{N}+", Kind.NUMBER)):
        table[_points(pattern, every)] = kind
    table[_points(r"\s+", every)] = Kind.BLANK
    table[ord(" ")] = Kind.SPACE
    table[[ord("\r"), ord("\n")]] = Kind.LINE_END
    # Some letters beyond ASCII are, case apart, those of contractions.
    alike = _points("(?i:[sdmtlvre])", every)
    table[alike[alike >= 0x80]] = Kind.UNSURE
    table[SURROGATES.start : SURROGATES.stop] = Kind.UNSURE
    return table


def _points(pattern: str, text: str) -> NDArray[np.intp]:
    """The characters that the expression matches: what it does not match has no tokens."""
    encoding = tiktoken.Encoding(
        "bytes",
        pat_str=pattern,
        mergeable_ranks={bytes((byte,)): byte for byte in range(256)},
        special_tokens={NEVER: 256},
    )
    ids = np.frombuffer(encoding._core_bpe.encode_to_tiktoken_buffer(text, set()), np.uint32)
    found = ids.astype(np.uint8).tobytes().decode()
    return np.array([ord(char) for char in found], np.intp)
