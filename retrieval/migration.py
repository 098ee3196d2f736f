"""What re-embedding an index reports and refuses, whatever store it is in."""

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

from retrieval.api import Chunk, EmbeddedChunk, Embedder, RetrievalError
from retrieval.stores.rows import search_text

BATCH = 256

Progress = Callable[[int, int], None]
"""Called with the chunks done and their total."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """`old` and `new` name index versions; they are equal when there was nothing to do."""

    old: str
    new: str
    num_chunks: int
    notes: Sequence[str] = field(default_factory=tuple)


class MigrationRefused(RetrievalError):
    """A sentence that says what must be done first; nothing was changed."""


async def embedded_batches(
    chunks: AsyncIterator[Chunk], embedder: Embedder
) -> AsyncIterator[list[EmbeddedChunk]]:
    """The chunks with new vectors, in order."""
    batch: list[Chunk] = []
    async for chunk in chunks:
        batch.append(chunk)
        if len(batch) == BATCH:
            yield await _embedded(batch, embedder)
            batch = []
    if batch:
        yield await _embedded(batch, embedder)


async def _embedded(batch: Sequence[Chunk], embedder: Embedder) -> list[EmbeddedChunk]:
    vectors = await embedder.embed([search_text(chunk) for chunk in batch])
    return [EmbeddedChunk(*pair) for pair in zip(batch, vectors, strict=True)]
