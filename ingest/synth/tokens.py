"""How long a text is in tokens: knows a tokenizer file or an honest estimate, no models."""

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tokenizers import Tokenizer

CHARS_PER_TOKEN = 3.8
"""Measured: SmolLM2's tokenizer on synthetic case files, 60,000 and 1,000,000 tokens."""


class TokenCounter(Protocol):
    @property
    def is_exact(self) -> bool: ...

    @property
    def method(self) -> str:
        """A phrase for the answer key: how the tokens were counted."""
        ...

    def count(self, text: str) -> int: ...


class EstimateCounter:
    """Divides characters by a constant."""

    is_exact = False
    method = f"estimate: {CHARS_PER_TOKEN} characters per token"

    def count(self, text: str) -> int:
        return round(len(text) / CHARS_PER_TOKEN)


class TokenizerCounter:
    """Counts with a `tokenizer.json`; no special tokens are added."""

    is_exact = True

    def __init__(self, tokenizer: "Tokenizer", *, digest: str) -> None:
        self._tokenizer = tokenizer
        self.method = f"tokenizer.json sha256 {digest}"

    @classmethod
    def load(cls, path: Path) -> "TokenizerCounter":
        """Raises OSError when the file cannot be read, ValueError when it is no tokenizer."""
        from tokenizers import Tokenizer

        body = path.read_bytes()
        try:
            tokenizer = Tokenizer.from_buffer(body)
        except Exception as error:
            raise ValueError(f"{path} is not a tokenizer.json: {error}") from error
        return cls(tokenizer, digest=hashlib.sha256(body).hexdigest())

    def count(self, text: str) -> int:
        return len(self._tokenizer.encode(text, add_special_tokens=False).ids)
