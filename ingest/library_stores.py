"""The `VectorStores` over their ledger and a searcher, which may live in another process.

Knows what may be found; changes of the index are jobs for the worker.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ingest.stores_api import (
    NewStoreFile,
    NewVectorStore,
    Page,
    PageRequest,
    StoreBatch,
    StoreChanges,
    StoreFile,
    StoreFileStatus,
    StoreFound,
    StoreHit,
    StoreSearch,
    VectorStoreRecord,
)
from ingest.stores_ledger import Shown, StoresLedger
from retrieval.api import Attribute, Passage, Searcher, SearchRequest, SearchResult, check_query
from retrieval.filters import check_filter, matches


class LocalVectorStores:
    def __init__(
        self, ledger: StoresLedger, searcher: Searcher, nudge: Callable[[], Awaitable[None]]
    ) -> None:
        self._ledger = ledger
        self._searcher = searcher
        self._nudge = nudge

    async def create(self, new: NewVectorStore) -> VectorStoreRecord:
        store_id = await self._ledger.create(new)
        if new.files:
            await self._nudge()
        return await self.get(store_id)

    async def get(self, store_id: str) -> VectorStoreRecord:
        return await self._ledger.get(store_id)

    async def list(self, request: PageRequest) -> Page[VectorStoreRecord]:
        return await self._ledger.page(request)

    async def update(self, store_id: str, changes: StoreChanges) -> VectorStoreRecord:
        await self._ledger.update(store_id, changes)
        return await self.get(store_id)

    async def delete(self, store_id: str) -> None:
        await self._ledger.delete(store_id)
        await self._nudge()

    async def add_file(self, store_id: str, new: NewStoreFile) -> StoreFile:
        await self._ledger.attach(store_id, [new], as_batch=False)
        await self._nudge()
        return await self.get_file(store_id, new.file_id)

    async def add_batch(self, store_id: str, files: Sequence[NewStoreFile]) -> StoreBatch:
        batch_id = await self._ledger.attach(store_id, files, as_batch=True)
        assert batch_id is not None, "a batch was asked for"
        await self._nudge()
        return await self.get_batch(store_id, batch_id)

    async def get_batch(self, store_id: str, batch_id: str) -> StoreBatch:
        return await self._ledger.get_batch(store_id, batch_id)

    async def cancel_batch(self, store_id: str, batch_id: str) -> StoreBatch:
        await self._ledger.cancel_batch(store_id, batch_id)
        await self._nudge()
        return await self.get_batch(store_id, batch_id)

    async def get_file(self, store_id: str, file_id: str) -> StoreFile:
        return await self._ledger.get_file(store_id, file_id)

    async def list_files(
        self,
        store_id: str,
        request: PageRequest,
        *,
        status: StoreFileStatus | None = None,
        batch_id: str | None = None,
    ) -> Page[StoreFile]:
        return await self._ledger.page_files(store_id, request, status=status, batch_id=batch_id)

    async def update_file(
        self, store_id: str, file_id: str, attributes: Mapping[str, Attribute]
    ) -> StoreFile:
        await self._ledger.set_attributes(store_id, file_id, attributes)
        await self._nudge()
        return await self.get_file(store_id, file_id)

    async def remove_file(self, store_id: str, file_id: str) -> None:
        await self._ledger.detach(store_id, file_id)
        await self._nudge()

    async def search(self, store_id: str, request: StoreSearch) -> StoreFound:
        for query in request.queries:
            check_query(query)
        if request.filter is not None:
            check_filter(request.filter)
        await self._ledger.touch(store_id)
        scope = await self._ledger.scope(store_id)
        if scope is not None and not scope:
            return StoreFound(hits=(), evidence=0.0)
        asked = [self._ask(store_id, query, scope, request) for query in request.queries]
        results = await asyncio.gather(*asked)
        found = {passage.document_id for result in results for passage in result.passages}
        return merged(results, await self._ledger.shown(store_id, found), request)

    async def _ask(
        self, store_id: str, query: str, scope: Sequence[str] | None, request: StoreSearch
    ) -> SearchResult:
        return await self._searcher.search(
            SearchRequest(
                query=query,
                document_ids=scope,
                collection=store_id,
                filter=request.filter,
                top_k=request.top_k,
                deadline_s=request.deadline_s,
            )
        )


def merged(
    results: Iterable[SearchResult], shown: Mapping[str, Shown], request: StoreSearch
) -> StoreFound:
    """The best passages of all results, of files that are shown and pass the filter as they are
    now; of two that overlap, the better."""
    results = list(results)
    passages = [passage for result in results for passage in result.passages]
    passages.sort(key=lambda one: (-one.score, one.document_id, one.start))
    taken = Taken()
    hits: list[StoreHit] = []
    for passage in passages:
        file = shown.get(passage.document_id)
        if file is None or passage.score < request.score_threshold:
            continue
        if request.filter is not None and not matches(request.filter, file.attributes):
            continue
        if len(hits) < request.top_k and taken.take(passage):
            hits.append(
                StoreHit(passage=passage, filename=file.filename, attributes=file.attributes)
            )
    evidence = max((result.evidence for result in results), default=0.0)
    return StoreFound(hits=hits, evidence=evidence if hits else 0.0)


@dataclass(slots=True)
class Taken:
    """The passages chosen so far."""

    spans: dict[str, list[Passage]] = field(default_factory=dict)

    def take(self, passage: Passage) -> bool:
        """False when it overlaps one that was taken."""
        others = self.spans.setdefault(passage.document_id, [])
        if any(one.start < passage.stop and passage.start < one.stop for one in others):
            return False
        others.append(passage)
        return True
