"""The hybrid search: embeds, asks one store, fuses and reads; knows no store by name."""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

from retrieval.analyzer import analyze
from retrieval.api import (
    Embedder,
    Passage,
    Reranker,
    SearchRequest,
    SearchResult,
    SearchUnavailable,
    Store,
    StoreQuery,
    TextSource,
    check_query,
)
from retrieval.config import SearchConfig
from retrieval.evidence import weigh_evidence
from retrieval.focus import focused
from retrieval.fusion import FusedHit, fuse, reordered
from retrieval.passages import build_passages, shortlist
from retrieval.stores.rows import search_text

logger = logging.getLogger(__name__)


class HybridSearcher:
    """A `Searcher` over one store. Stateless between searches; safe for concurrent use."""

    def __init__(
        self,
        store: Store,
        embedder: Embedder,
        texts: TextSource,
        config: SearchConfig,
        *,
        reranker: Reranker | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._embedder = embedder
        self._texts = texts
        self._config = config
        self._reranker = reranker
        self._clock = clock

    async def search(self, request: SearchRequest) -> SearchResult:
        check_query(request.query)
        started = self._clock()
        try:
            async with asyncio.timeout(request.deadline_s):
                result = await self._search(request, started)
        except TimeoutError as error:
            raise SearchUnavailable(
                f"the search took longer than its {request.deadline_s:g} s"
            ) from error
        logger.info(
            "search",
            extra={
                "documents": _num_documents(request),
                "passages": len(result.passages),
                "evidence": round(result.evidence, 3),
                "seconds": round(result.seconds, 4),
            },
        )
        return result

    async def _search(self, request: SearchRequest, started: float) -> SearchResult:
        terms = analyze(request.query)
        hits, num_searched = await self._ranked(request, terms)
        reranked = await self._reranked(request, hits, started)
        found = await self._passages(reranked or shortlist(hits, request.top_k), request.top_k)
        passages = [focused(passage, terms) for passage in found]
        return SearchResult(
            passages=passages,
            evidence=weigh_evidence(terms, hits) if passages else 0.0,
            num_searched=num_searched,
            seconds=self._clock() - started,
        )

    async def _ranked(
        self, request: SearchRequest, terms: Sequence[str]
    ) -> tuple[list[FusedHit], int]:
        if request.document_ids is not None and not request.document_ids:
            return [], 0
        [vector] = await self._embedder.embed([request.query])
        candidates = await self._store.search(
            StoreQuery(
                terms=" ".join(terms),
                vector=vector,
                document_ids=request.document_ids,
                collection=request.collection,
                filter=request.filter,
                num_candidates=self._config.num_candidates,
            )
        )
        return fuse(candidates, self._config.fusion, vector), candidates.num_searched

    async def _reranked(
        self, request: SearchRequest, hits: Sequence[FusedHit], started: float
    ) -> list[FusedHit] | None:
        """The hits in the reranker's order; None without one, or when it took too long."""
        best = hits[: self._config.num_reranked]
        if self._reranker is None or not best:
            return None
        left_s = request.deadline_s - (self._clock() - started)
        texts = [search_text(hit.chunk) for hit in best]
        try:
            async with asyncio.timeout(self._config.rerank_share * left_s):
                scores = await self._reranker.scores(request.query, texts)
        except TimeoutError:
            logger.info("reranking took too long", extra={"left_s": round(left_s, 3)})
            return None
        return reordered(hits, scores) if scores is not None else None

    async def _passages(self, hits: Sequence[FusedHit], top_k: int) -> list[Passage]:
        """Read only the documents that the best hits need, more when that was not enough."""
        texts: dict[str, str] = {}
        num_hits = 2 * top_k
        while True:
            for document_id in {hit.chunk.document_id for hit in hits[:num_hits]} - texts.keys():
                texts[document_id] = await self._texts.text(document_id) or ""
            passages = build_passages(hits[:num_hits], texts, top_k, self._config.passages)
            if len(passages) >= top_k or num_hits >= len(hits):
                return passages
            num_hits *= 4


def _num_documents(request: SearchRequest) -> int | str:
    return "all" if request.document_ids is None else len(request.document_ids)
