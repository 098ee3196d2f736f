"""Searches documents that came inside a request, without an index on disk.

Lexical first over every chunk; only the best are embedded. What was built is kept by digest, so
the next question on the same documents is fast. Knows no file and no store.
"""

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ingest.api import InlineDocument, InlineSearch
from ingest.chunking import ChunkConfig, ChunkSource, chunk
from retrieval.analyzer import analyze
from retrieval.api import (
    Candidates,
    Chunk,
    Embedder,
    Hit,
    Passage,
    SearchResult,
    SearchUnavailable,
    check_query,
)
from retrieval.config import SearchConfig
from retrieval.evidence import weigh_evidence
from retrieval.focus import focused, sharpened
from retrieval.fusion import fuse
from retrieval.lexical import LexicalIndex
from retrieval.passages import build_passages

BYTES_PER_CHAR = 8
"""Of a corpus in memory. Text, chunks and postings were 6.4 on 1.4 M characters of English."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InlineConfig:
    chunks: ChunkConfig = field(default_factory=ChunkConfig)
    search: SearchConfig = field(default_factory=SearchConfig)
    num_embedded: int = 64
    """Chunks embedded for one question: about 0.6 s on two cores. On the chunking corpora and on
    facts planted in 1 M tokens 32 to 128 find the same, 256 and more a little less."""

    cache_bytes: int = 512 << 20

    def __post_init__(self) -> None:
        if self.num_embedded < 1 or self.cache_bytes < 0:
            raise ValueError("num_embedded must be positive, cache_bytes not negative")


@dataclass(slots=True, kw_only=True)
class Corpus:
    """The documents of one request, chunked and indexed; `vectors` fills up by chunk place."""

    texts: dict[str, str]
    chunks: list[Chunk]
    index: LexicalIndex
    num_bytes: int
    vectors: dict[int, Sequence[float]] = field(default_factory=dict)


class InlineSearcher:
    """Safe for concurrent use. Corpora are built one at a time, which bounds memory."""

    def __init__(
        self,
        embedder: Embedder,
        search_text: Callable[[Chunk], str],
        config: InlineConfig,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._embedder = embedder
        self._search_text = search_text
        self._config = config
        self._clock = clock
        self._building = asyncio.Lock()
        self._kept: OrderedDict[str, Corpus] = OrderedDict()
        self._kept_bytes = 0

    async def search_inline(self, request: InlineSearch) -> SearchResult:
        """Raises QueryRejected, or SearchUnavailable when the deadline passes."""
        started = self._clock()
        check_query(request.query)
        try:
            async with asyncio.timeout(request.deadline_s):
                corpus = await self._corpus(request.documents)
                return await self._search(corpus, request, started)
        except TimeoutError as error:
            raise SearchUnavailable(
                f"the search took longer than its {request.deadline_s:g} s"
            ) from error

    async def _search(self, corpus: Corpus, request: InlineSearch, started: float) -> SearchResult:
        terms = analyze(request.query)
        places, lexical = await asyncio.to_thread(self._lexical, corpus, terms)
        vector = await self._vector_side(corpus, request.query, places)
        candidates = Candidates(lexical=lexical, vector=vector, num_searched=len(corpus.chunks))
        passages, evidence = await asyncio.to_thread(
            self._read, corpus, candidates, terms, request.top_k
        )
        return SearchResult(
            passages=passages,
            evidence=evidence,
            num_searched=len(corpus.chunks),
            seconds=self._clock() - started,
        )

    def _read(
        self, corpus: Corpus, candidates: Candidates, terms: Sequence[str], top_k: int
    ) -> tuple[list[Passage], float]:
        """The passages, and how sure it is that they answer."""
        fused = fuse(candidates, self._config.search.fusion)
        hits = sharpened(fused, {term: corpus.index.rarity(term) for term in terms})
        found = build_passages(hits, corpus.texts, top_k, self._config.search.passages)
        passages = [focused(passage, terms) for passage in found]
        return passages, weigh_evidence(terms, hits) if passages else 0.0

    def _lexical(self, corpus: Corpus, terms: Sequence[str]) -> tuple[list[int], list[Hit]]:
        """Which chunks to embed, and the lexical hits among them."""
        num_embedded = self._config.num_embedded
        found = corpus.index.top(terms, max(num_embedded, self._config.search.num_candidates))
        hits = [Hit(corpus.chunks[place], score) for place, score in found]
        places = [place for place, _ in found[:num_embedded]]
        return places + self._sampled(corpus, places), hits

    def _sampled(self, corpus: Corpus, places: Sequence[int]) -> list[int]:
        """Where words match little, an even sample of the rest: meaning may match."""
        room = self._config.num_embedded - len(places)
        if room <= 0:
            return []
        rest = sorted(set(range(len(corpus.chunks))) - set(places))
        step = max(1, -(-len(rest) // room))
        return rest[::step]

    async def _vector_side(self, corpus: Corpus, query: str, places: Sequence[int]) -> list[Hit]:
        if not places:
            return []
        missing = [place for place in places if place not in corpus.vectors]
        texts = [query, *(self._search_text(corpus.chunks[place]) for place in missing)]
        query_vector, *vectors = await self._embedder.embed(texts)
        corpus.vectors.update(zip(missing, vectors, strict=True))
        matrix = np.array([corpus.vectors[place] for place in places], dtype=np.float32)
        similarities = np.clip(matrix @ np.asarray(query_vector, dtype=np.float32), -1.0, 1.0)
        hits = [
            Hit(corpus.chunks[place], float(similarity))
            for place, similarity in zip(places, similarities, strict=True)
        ]
        return sorted(hits, key=lambda hit: -hit.score)[: self._config.search.num_candidates]

    async def _corpus(self, documents: Sequence[InlineDocument]) -> Corpus:
        key = await asyncio.to_thread(digest_of, documents)
        async with self._building:
            corpus = self._kept.get(key)
            if corpus is None:
                corpus = await asyncio.to_thread(self._build, documents)
                self._keep(key, corpus)
            else:
                self._kept.move_to_end(key)
        return corpus

    def _build(self, documents: Sequence[InlineDocument]) -> Corpus:
        texts, chunks = dict[str, str](), list[Chunk]()
        for document in documents:
            source = ChunkSource(document_id=document.id, generation="inline", text=document.text)
            texts[document.id] = document.text
            chunks += chunk(source, self._config.chunks)
        num_chars = sum(map(len, texts.values()))
        return Corpus(
            texts=texts,
            chunks=chunks,
            index=LexicalIndex.build(self._search_text(each) for each in chunks),
            num_bytes=num_chars * BYTES_PER_CHAR,
        )

    def _keep(self, key: str, corpus: Corpus) -> None:
        if corpus.num_bytes > self._config.cache_bytes:
            return
        self._kept[key] = corpus
        self._kept_bytes += corpus.num_bytes
        while self._kept_bytes > self._config.cache_bytes:
            _, dropped = self._kept.popitem(last=False)
            self._kept_bytes -= dropped.num_bytes


def digest_of(documents: Sequence[InlineDocument]) -> str:
    """SHA-256 hex over ids and texts, in order."""
    digest = hashlib.sha256()
    for document in documents:
        for part in (document.id, document.text):
            raw = part.encode("utf-8", "surrogatepass")
            digest.update(len(raw).to_bytes(8, "big"))
            digest.update(raw)
    return digest.hexdigest()
