"""What the rest of Ringway may know of the embedder: its facts, vectors of texts, exact counts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ingest.api import IngestError


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedderFacts:
    """`max_tokens` is the longest text that gets a vector, special tokens included."""

    model: str
    dimension: int
    max_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedded:
    """Unit vectors and the tokens that the model read for each, in the order of the texts."""

    vectors: Sequence[Sequence[float]]
    num_tokens: Sequence[int]


class TextTooLong(IngestError):
    """A text has more tokens than the model reads at once; no text of the request was embedded."""

    def __init__(self, *, index: int, num_tokens: int, limit: int) -> None:
        super().__init__(
            f"text {index} has {num_tokens} tokens; the embedding model reads {limit} at once. "
            f"Split it into parts of at most {limit} tokens"
        )
        self.index = index
        self.num_tokens = num_tokens
        self.limit = limit


class Embeddings(Protocol):
    """Safe for concurrent use. Both raise SearchUnavailable while the worker does not answer."""

    async def facts(self) -> EmbedderFacts: ...

    async def embed(self, texts: Sequence[str]) -> Embedded:
        """Vectors of whole texts; nothing is cut. Raises TextTooLong for the first that is."""
        ...
