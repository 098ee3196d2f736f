"""A store that forgets: exact BM25 and exact cosine, the oracle that other stores are held to."""

from collections.abc import Iterable, Sequence

import numpy as np

from retrieval.analyzer import analyze
from retrieval.api import Candidates, Chunk, EmbeddedChunk, Hit, StoreQuery
from retrieval.lexical import LexicalIndex
from retrieval.stores.rows import search_text


class MemoryStore:
    """A `Store` in this process. The first search after a change rebuilds the lexical index."""

    def __init__(self) -> None:
        self._rows: dict[str, EmbeddedChunk] = {}
        self._index: LexicalIndex | None = None

    async def write(self, chunks: Sequence[EmbeddedChunk]) -> None:
        self._rows |= {row.chunk.id: row for row in chunks}
        self._index = None

    async def search(self, query: StoreQuery) -> Candidates:
        scope = set(query.document_ids)
        rows = list(self._rows.values())
        places = [place for place, row in enumerate(rows) if row.chunk.document_id in scope]
        scores = self._lexical_index().scores(query.terms.split())
        lexical_hits = [_hit(rows[place], scores[place]) for place in places]
        return Candidates(
            lexical=_best((hit for hit in lexical_hits if hit.score > 0), query.num_candidates),
            vector=_best(self._vector_hits(query, places), query.num_candidates),
            num_searched=len(places),
        )

    async def delete(self, document_id: str, *, keep_generation: str | None = None) -> None:
        self._rows = {
            chunk_id: row
            for chunk_id, row in self._rows.items()
            if row.chunk.document_id != document_id or row.chunk.generation == keep_generation
        }
        self._index = None

    async def count(self, document_id: str, generation: str) -> int:
        return sum(_is_of(row.chunk, document_id, generation) for row in self._rows.values())

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


def _hit(row: EmbeddedChunk, score: np.float32) -> Hit:
    return Hit(row.chunk, float(score), row.vector)


def _is_of(chunk: Chunk, document_id: str, generation: str) -> bool:
    return chunk.document_id == document_id and chunk.generation == generation


def _best(hits: Iterable[Hit], limit: int) -> list[Hit]:
    return sorted(hits, key=lambda hit: (-hit.score, hit.chunk.id))[:limit]
