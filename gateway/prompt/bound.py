"""How many tokens a text has at least, told from its bytes; never more than it has.

Knows the vocabulary's bytes. For refusing hopeless prompts without counting them.
"""

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

SLICE_CHARS = 32_768

SIGNS = frozenset(range(33, 127))
CLASSES = bytes(97 if byte in SIGNS else 32 if byte == 32 else 120 for byte in range(256))
"""Letters, digits and marks of ASCII become "a", the space stays, all else is "x"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenBound:
    max_token_bytes: int
    unknown: bytes = b""
    """Bytes that tokenizing drops: they are no part of any token."""
    composes: bool = False
    """Whether texts are normalised to NFC first, which shortens some."""
    spaces_begin: bool = False
    """Whether no token holds a space behind a letter, digit or mark of ASCII: between the two a
    token then ends."""

    @classmethod
    def of(cls, tokens: Iterable[bytes], *, unknown: bytes, composes: bool) -> "TokenBound":
        longest, begins = 1, True
        for token in tokens:
            longest = max(longest, len(token))
            begins = begins and b"a " not in token.translate(CLASSES)
        return cls(max_token_bytes=longest, unknown=unknown, composes=composes, spaces_begin=begins)

    def least_tokens(self, texts: Iterable[str], *, enough: int) -> int:
        """A lower bound of the texts' tokens together; stops looking once it is above `enough`."""
        num_bytes = num_runs = 0
        for text in texts:
            for at in range(0, len(text), SLICE_CHARS):
                part = text[at : at + SLICE_CHARS]
                if self.composes and not part.isascii():
                    part = unicodedata.normalize("NFC", part)
                raw = part.encode()
                if self.unknown:
                    raw = raw.translate(None, self.unknown)
                num_bytes += len(raw)
                if self.spaces_begin:
                    num_runs += raw.translate(CLASSES).count(b"a ")
                least = max(-(-num_bytes // self.max_token_bytes), num_runs)
                if least > enough:
                    return least
        return max(-(-num_bytes // self.max_token_bytes), num_runs)
