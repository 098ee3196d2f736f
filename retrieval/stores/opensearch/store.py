"""The store on OpenSearch, managed, self-hosted or Serverless; knows queries and documents only
as bodies made elsewhere.

Writes and searches name the concrete index that was current at the start, not the alias: after a
migration a process with the old embedder is refused rather than mixing vectors.
"""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from retrieval.api import (
    LIBRARY,
    Candidates,
    EmbeddedChunk,
    Embedder,
    Hit,
    SearchUnavailable,
    StoreQuery,
)
from retrieval.config import OpenSearchConfig
from retrieval.filters import check_filter
from retrieval.stores.opensearch.bulk import BulkSender, delete_action, index_action
from retrieval.stores.opensearch.cluster import Cluster, RequestFailed
from retrieval.stores.opensearch.documents import (
    Json,
    chunk_of,
    document_of,
    identity_of,
    index_body,
    vector_of,
)
from retrieval.stores.opensearch.queries import (
    any_value,
    cosine_of,
    document_filter,
    search_bodies,
)
from retrieval.stores.opensearch.versions import Versions, check_identity
from retrieval.stores.rows import check_embedded

Sleep = Callable[[float], Awaitable[None]]

PAGE = 2_000
_FIRST_POLL_S = 0.05
_LONGEST_POLL_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lying:
    """A document as it lies in the index: its own id there, the chunk's, and its writer's."""

    id: str
    chunk_id: str
    stamp: str


class OpenSearchStore:
    """A `Store`. Safe for concurrent use; several processes may write."""

    def __init__(
        self,
        cluster: Cluster,
        index: str,
        dimension: int,
        config: OpenSearchConfig,
        *,
        rng: Random | None = None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._cluster = cluster
        self._index = index
        self._dimension = dimension
        self._config = config
        self._sleep = sleep
        self._versions = Versions(cluster, config.alias)
        self._bulk = BulkSender(
            cluster,
            max_bytes=config.bulk_bytes,
            max_attempts=config.max_attempts,
            rng=rng or Random(),
            sleep=sleep,
        )

    @classmethod
    async def open(cls, embedder: Embedder, config: OpenSearchConfig) -> "OpenSearchStore":
        """Find or create the index. Raises IndexMismatch, SearchUnavailable, or ValueError."""
        cluster = Cluster.connect(config)
        try:
            index = await _current_index(cluster, embedder, config)
        except BaseException:
            await cluster.aclose()
            raise
        return cls(cluster, index, embedder.dimension, config)

    async def write(self, chunks: Sequence[EmbeddedChunk]) -> None:
        latest = {embedded.chunk.id: embedded for embedded in chunks}
        for embedded in latest.values():
            check_embedded(embedded)
            if len(embedded.vector) != self._dimension:
                raise ValueError(f"vectors must have {self._dimension} numbers")
        if latest:
            await self._check_current()
            await self._put(latest)

    async def fill(self, chunks: Sequence[EmbeddedChunk]) -> None:
        """As `write`, into an index that no alias names yet."""
        await self._put({embedded.chunk.id: embedded for embedded in chunks})

    async def remove(self, chunk_ids: Sequence[str]) -> None:
        """These chunks, wherever they belong."""
        for group in _groups(list(chunk_ids)):
            await self._remove(any_value("chunk_id", group))

    async def _put(self, latest: Mapping[str, EmbeddedChunk]) -> None:
        stamp = uuid.uuid4().hex
        documents = await asyncio.to_thread(
            lambda: [document_of(embedded, stamp) for embedded in latest.values()]
        )
        own_ids = self._config.has_own_nodes
        await self._bulk.send(
            self._index,
            [
                index_action(each, id_=str(each["chunk_id"]) if own_ids else None)
                for each in documents
            ],
        )
        if own_ids:
            await self._refresh()
        else:
            await self._until_seen(list(latest), stamp)

    async def search(self, query: StoreQuery) -> Candidates:
        if query.document_ids is not None and not query.document_ids:
            return Candidates(lexical=[], vector=[])
        if query.filter is not None:
            check_filter(query.filter)
        bodies = search_bodies(query, with_vectors=self._config.fetch_vectors)
        counted, near, *worded = await self._cluster.search_many(self._index, bodies)
        engine = self._config.engine
        return Candidates(
            lexical=_summed(worded)[: query.num_candidates],
            vector=_distinct(_hits(near, lambda score: cosine_of(score, engine))),
            num_searched=_total(counted),
        )

    async def delete(
        self, document_id: str, *, collection: str = LIBRARY, keep_generation: str | None = None
    ) -> None:
        await self._check_current()
        await self._remove(document_filter(collection, document_id, but=keep_generation))

    async def _remove(self, query: Json) -> None:
        patience = _Patience(self._config, self._sleep)
        if self._config.has_own_nodes:
            # A writer that was killed may have left documents that no search sees yet.
            await self._refresh()
        while found := [each async for each in self.lying(query)]:
            await self._bulk.send(self._index, [delete_action(each.id) for each in found])
            await self._settle(patience, f"{len(found)} deleted chunks can still be found")

    async def count(self, document_id: str, generation: str, *, collection: str = LIBRARY) -> int:
        """Distinct chunks: on Serverless a write whose answer got lost may lie there twice."""
        query = document_filter(collection, document_id, generation=generation)
        return len({each.chunk_id async for each in self.lying(query)})

    async def aclose(self) -> None:
        await self._cluster.aclose()

    async def lying(self, query: Json) -> AsyncIterator[Lying]:
        """Every document that matches, in the order of chunk ids."""
        async for hit in self.scan(query, fields=["chunk_id", "stamp"]):
            source = hit["_source"]
            assert isinstance(source, dict), "the fields that were asked for"
            yield Lying(
                id=str(hit["_id"]), chunk_id=str(source["chunk_id"]), stamp=str(source["stamp"])
            )

    async def scan(self, query: Json, *, fields: Sequence[str]) -> AsyncIterator[Json]:
        """Raw hits of all matching documents, page by page, in the order of chunk ids.

        Duplicates of one chunk (Serverless) at a page's edge may be passed over.
        """
        after: Json = {}
        while True:
            body: Json = {
                "query": query,
                "size": PAGE,
                "_source": list(fields),
                "sort": [{"chunk_id": "asc"}],
                "track_total_hits": False,
                **after,
            }
            hits = _raw_hits(await self._cluster.read("POST", f"/{self._index}/_search", body))
            for hit in hits:
                yield hit
            if len(hits) < PAGE:
                return
            after = {"search_after": hits[-1]["sort"]}

    async def _check_current(self) -> None:
        """Refuse to write where nobody would find it."""
        current = await self._versions.current()
        if current != self._index:
            raise SearchUnavailable(
                f"the index moved from {self._index} to {current}: restart with its embedder"
            )

    async def _refresh(self) -> None:
        await self._cluster.read("POST", f"/{self._index}/_refresh")

    async def _settle(self, patience: "_Patience", complaint: str) -> None:
        """Let what was written be seen; Serverless can only be waited for."""
        await patience.pause(complaint)
        if self._config.has_own_nodes:
            await self._refresh()

    async def _until_seen(self, chunk_ids: list[str], stamp: str) -> None:
        """Wait for this write's documents and remove all others of the same chunks: older ones,
        and second copies of a request that was sent again."""
        patience = _Patience(self._config, self._sleep)
        while True:
            kept: dict[str, str] = {}
            others: list[str] = []
            for group in _groups(chunk_ids):
                async for each in self.lying(any_value("chunk_id", group)):
                    if each.stamp == stamp and each.chunk_id not in kept:
                        kept[each.chunk_id] = each.id
                    else:
                        others.append(each.id)
            missing = len(chunk_ids) - len(kept)
            if not missing and not others:
                return
            if not missing:
                await self._bulk.send(self._index, [delete_action(id_) for id_ in others])
            await self._settle(patience, f"{missing} of {len(chunk_ids)} chunks cannot be found")


class _Patience:
    """Ever longer pauses, until there is no time left. A cluster of our own needs none."""

    def __init__(self, config: OpenSearchConfig, sleep: Sleep = asyncio.sleep) -> None:
        self._limit_s = config.visible_within_s
        self._deadline = time.monotonic() + config.visible_within_s
        self._pause_s = 0.0 if config.has_own_nodes else _FIRST_POLL_S
        self._sleep = sleep

    async def pause(self, complaint: str) -> None:
        if time.monotonic() > self._deadline:
            raise SearchUnavailable(f"{complaint} after {self._limit_s:g} s")
        await self._sleep(self._pause_s)
        self._pause_s = min(_LONGEST_POLL_S, 1.5 * self._pause_s)


async def _current_index(cluster: Cluster, embedder: Embedder, config: OpenSearchConfig) -> str:
    """Creating is idempotent: several processes may start at once, or be killed in between."""
    versions = Versions(cluster, config.alias)
    index = await versions.current()
    if index is None:
        first = versions.name(1)
        await versions.create(first, index_body(embedder, config))
        await until_there(versions, first, config)
        await versions.point(first, instead_of=None)
        index = first
    versions.number(index)
    check_identity(await versions.identity(index), identity_of(embedder))
    return index


async def until_there(versions: Versions, index: str, config: OpenSearchConfig) -> None:
    """Serverless answers 404 for seconds after it created an index."""
    patience = _Patience(config)
    while not await versions.exists(index):
        await patience.pause(f"the new index {index} cannot be found")


def _groups(ids: list[str]) -> Iterator[list[str]]:
    """Few enough that duplicates of all of them fit one page."""
    for first in range(0, len(ids), PAGE // 4):
        yield ids[first : first + PAGE // 4]


def _raw_hits(answer: Json) -> list[Json]:
    outer = answer.get("hits")
    hits = outer.get("hits") if isinstance(outer, dict) else None
    if not isinstance(hits, list):
        raise RequestFailed("OpenSearch's answer has no hits", status=None)
    return hits


def _total(answer: Json) -> int:
    outer = answer.get("hits")
    assert isinstance(outer, dict), "a search answers with hits"
    return int(outer["total"]["value"])


def _hits(answer: Json, score_of: Callable[[float], float]) -> list[Hit]:
    hits = []
    for raw in _raw_hits(answer):
        source, score = raw["_source"], raw["_score"]
        assert isinstance(source, dict), "asked for"
        assert isinstance(score, float | int), "a scored search"
        hits.append(Hit(chunk_of(source), score_of(float(score)), vector_of(source)))
    return sorted(hits, key=lambda hit: (-hit.score, hit.chunk.id))


def _distinct(hits: Sequence[Hit]) -> list[Hit]:
    """The best of each chunk."""
    best: dict[str, Hit] = {}
    for hit in hits:
        best.setdefault(hit.chunk.id, hit)
    return list(best.values())


def _summed(answers: Sequence[Json]) -> list[Hit]:
    """The lexical side of a query that was asked in parts: BM25 is a sum over words."""
    totals: dict[str, Hit] = {}
    for answer in answers:
        for hit in _distinct(_hits(answer, lambda score: score)):
            known = totals.get(hit.chunk.id)
            total = hit.score + (known.score if known else 0.0)
            totals[hit.chunk.id] = Hit(hit.chunk, total, hit.vector)
    return sorted(totals.values(), key=lambda hit: (-hit.score, hit.chunk.id))
