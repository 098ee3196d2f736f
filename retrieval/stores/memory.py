"""A store that forgets: exact BM25 and exact cosine, the oracle that other stores are held to."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from retrieval.analyzer import analyze
from retrieval.api import LIBRARY, Candidates, Chunk, EmbeddedChunk, Hit, StoreQuery
from retrieval.filters import check_filter, scope_of
from retrieval.lexical import LexicalIndex
from retrieval.stores.rows import check_embedded, plain, search_text


class MemoryStore:
    """A `Store` in this process. The first search after a change rebuilds the lexical index."""

    def __init__(self) -> None:
        self._rows: dict[str, EmbeddedChunk] = {}
        self._index: LexicalIndex | None = None

    async def write(self, chunks: Sequence[EmbeddedChunk]) -> None:
        for row in chunks:
            check_embedded(row)
        self._rows |= {row.chunk.id: _as_stored(row) for row in chunks}
        self._index = None

    async def search(self, query: StoreQuery) -> Candidates:
        if query.filter is not None:
            check_filter(query.filter)
        rows = list(self._rows.values())
        scope = scope_of(query)
        places = [place for place, row in enumerate(rows) if scope(row.chunk)]
        scores = self._lexical_index().scores(query.terms.split())
        lexical_hits = [_hit(rows[place], scores[place]) for place in places]
        return Candidates(
            lexical=_best((hit for hit in lexical_hits if hit.score > 0), query.num_candidates),
            vector=_best(self._vector_hits(query, places), query.num_candidates),
            num_searched=len(places),
        )

    async def delete(
        self, document_id: str, *, collection: str = LIBRARY, keep_generation: str | None = None
    ) -> None:
        self._rows = {
            chunk_id: row
            for chunk_id, row in self._rows.items()
            if not _is_of(row.chunk, document_id, collection)
            or row.chunk.generation == keep_generation
        }
        self._index = None

    async def count(self, document_id: str, generation: str, *, collection: str = LIBRARY) -> int:
        return sum(
            _is_of(row.chunk, document_id, collection) and row.chunk.generation == generation
            for row in self._rows.values()
        )

    async def aclose(self) -> None:
        """Nothing is held."""

    def _lexical_index(self) -> LexicalIndex:
        if self._index is None:
            self._index = LexicalIndex.from_terms(
                analyze(search_text(row.chunk)) for row in self._rows.values()
            )
        return self._index

    def _vector_hits(self, query: StoreQuery, places: Sequence[int]) -> list[Hit]:
        if not places:
            return []
        rows = list(self._rows.values())
        vectors = np.asarray([rows[place].vector for place in places], dtype=np.float32)
        wanted = np.asarray(query.vector, dtype=np.float32)
        lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(wanted)
        cosines = vectors @ wanted / np.maximum(lengths, 1e-12)
        return [_hit(rows[place], cosine) for place, cosine in zip(places, cosines, strict=True)]


def _as_stored(row: EmbeddedChunk) -> EmbeddedChunk:
    attributes = {key: plain(value) for key, value in row.chunk.attributes.items()}
    return EmbeddedChunk(replace(row.chunk, attributes=attributes), row.vector)


def _hit(row: EmbeddedChunk, score: np.float32) -> Hit:
    return Hit(row.chunk, float(score), row.vector)


def _is_of(chunk: Chunk, document_id: str, collection: str) -> bool:
    return chunk.document_id == document_id and chunk.collection == collection


def _best(hits: Iterable[Hit], limit: int) -> list[Hit]:
    return sorted(hits, key=lambda hit: (-hit.score, hit.chunk.id))[:limit]
