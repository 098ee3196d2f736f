"""Chunks into the index and out of it, checked: knows embedder and store, no file and no text."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from ingest.api import FailureCode, PermanentError, TransientError
from ingest.commits import Commits
from retrieval.api import (
    LIBRARY,
    Chunk,
    EmbeddedChunk,
    Embedder,
    SearchUnavailable,
    Store,
    WriteRejected,
)

BATCHES_AT_A_TIME = 2
"""Of one document: one is embedded while the one before is written."""

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
    """While one batch is written the next is embedded; small documents share commits. Raises
    TransientError when the index does not answer, or holds something else than it was told."""

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
        self._commits = Commits(store, enough_chunks=batch_chunks)

    @property
    def embedder(self) -> str:
        """The identity of what makes the vectors."""
        return self._embedder.identity

    @property
    def dimension(self) -> int:
        return self._embedder.dimension

    async def write(self, chunks: Sequence[Chunk]) -> Vectors:
        """Embed and index the chunks; returns their vectors, in order."""
        places = asyncio.Semaphore(BATCHES_AT_A_TIME)

        async def write_one(batch: Sequence[Chunk]) -> Sequence[EmbeddedChunk]:
            async with places:
                with _translated():
                    return await self._commits.write_coming(self._embedded(batch))

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(write_one(batch))
                    for batch in batches(chunks, self._batch_chunks)
                ]
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from errors
        return [row.vector for task in tasks for row in task.result()]

    async def write_known(self, chunks: Sequence[Chunk], vectors: Vectors) -> None:
        """The same for chunks whose vectors are at hand."""
        rows = [EmbeddedChunk(*pair) for pair in zip(chunks, vectors, strict=True)]
        for batch in batches(rows, self._batch_chunks):
            with _translated():
                await self._commits.write(batch)

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

    async def _embedded(self, batch: Sequence[Chunk]) -> list[EmbeddedChunk]:
        texts = [self._search_text(each) for each in batch]
        try:
            vectors = await self._embedder.embed(texts)
        except SearchUnavailable as error:
            raise TransientError(f"the embedder does not answer: {error}") from error
        return [EmbeddedChunk(*pair) for pair in zip(batch, vectors, strict=True)]

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


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except WriteRejected as error:
        raise ChunkRefused(f"The index refuses a part of the file: {error.reason}.") from error
    except SearchUnavailable as error:
        raise TransientError(f"the index does not answer: {error}") from error
