"""Chunks into the index and out of it, checked: knows embedder and store, no file and no text."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ingest.api import FailureCode, PermanentError, TransientError
from retrieval.api import (
    LIBRARY,
    Chunk,
    EmbeddedChunk,
    Embedder,
    SearchUnavailable,
    Store,
    WriteRejected,
)

Vectors = Sequence[Sequence[float]]
Thing = TypeVar("Thing")


class ChunkRefused(PermanentError):
    """The index will never take a chunk of the file."""

    failure = FailureCode.SERVER_ERROR


@dataclass(frozen=True, slots=True)
class Shelf:
    """Where a document's chunks are: a collection, and in it the document."""

    document_id: str
    collection: str = LIBRARY


class Indexer:
    """Batches of different documents take turns. Raises TransientError when the index does not
    answer, or holds something else than it was told."""

    def __init__(
        self,
        embedder: Embedder,
        store: Store,
        search_text: Callable[[Chunk], str],
        *,
        batch_chunks: int,
    ) -> None:
        self._embedder = embedder
        self._store = store
        self._search_text = search_text
        self._batch_chunks = batch_chunks
        self._indexing = asyncio.Lock()

    @property
    def embedder(self) -> str:
        """The identity of what makes the vectors."""
        return self._embedder.identity

    @property
    def dimension(self) -> int:
        return self._embedder.dimension

    async def write(self, chunks: Sequence[Chunk]) -> Vectors:
        """Embed and index the chunks; returns their vectors, in order."""
        written: list[Sequence[float]] = []
        for batch in batches(chunks, self._batch_chunks):
            async with self._indexing:
                vectors = await self._embed(batch)
                await self._write(batch, vectors)
            written += vectors
        return written

    async def write_known(self, chunks: Sequence[Chunk], vectors: Vectors) -> None:
        """The same for chunks whose vectors are at hand."""
        pairs = list(zip(chunks, vectors, strict=True))
        for batch in batches(pairs, self._batch_chunks):
            async with self._indexing:
                await self._write([one for one, _ in batch], [vector for _, vector in batch])

    async def check(self, shelf: Shelf, generation: str, num_chunks: int) -> None:
        num_found = await self._count(shelf, generation)
        if num_found != num_chunks:
            raise TransientError(f"the index holds {num_found} of {num_chunks} chunks")

    async def remove(
        self,
        shelf: Shelf,
        *,
        keep_generation: str | None = None,
        generation: str | None = None,
    ) -> None:
        """Remove the document's chunks; `generation` is looked for afterwards and must be gone."""
        try:
            await self._store.delete(
                shelf.document_id, collection=shelf.collection, keep_generation=keep_generation
            )
        except SearchUnavailable as error:
            raise TransientError(f"the index does not delete: {error}") from error
        if generation is None or generation == keep_generation:
            return
        num_left = await self._count(shelf, generation)
        if num_left:
            raise TransientError(f"the index still holds {num_left} chunks that were deleted")

    async def _embed(self, batch: Sequence[Chunk]) -> Vectors:
        try:
            return await self._embedder.embed([self._search_text(each) for each in batch])
        except SearchUnavailable as error:
            raise TransientError(f"the embedder does not answer: {error}") from error

    async def _write(self, batch: Sequence[Chunk], vectors: Vectors) -> None:
        pairs = zip(batch, vectors, strict=True)
        try:
            await self._store.write([EmbeddedChunk(each, vector) for each, vector in pairs])
        except WriteRejected as error:
            raise ChunkRefused(f"The index refuses a part of the file: {error.reason}.") from error
        except SearchUnavailable as error:
            raise TransientError(f"the index does not answer: {error}") from error

    async def _count(self, shelf: Shelf, generation: str) -> int:
        try:
            return await self._store.count(
                shelf.document_id, generation, collection=shelf.collection
            )
        except SearchUnavailable as error:
            raise TransientError(f"the index does not answer: {error}") from error


def batches(things: Sequence[Thing], size: int) -> Iterator[Sequence[Thing]]:
    for first in range(0, len(things), size):
        yield things[first : first + size]
