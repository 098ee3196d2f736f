"""The `Library` over ledger, blobs and two searchers, which may live in another process.

Knows what a caller may see; imports neither parsers nor models nor an index.
"""

import builtins
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol

from ingest.api import (
    LOCAL,
    FileMissing,
    FilePage,
    FileRecord,
    InlineSearch,
    StoredText,
    TransientError,
    first_status,
    refuse_unprocessed,
)
from ingest.blobs import BlobMissing, BlobStore
from ingest.ledger import Ledger, new_file_id
from ingest.library_stores import LocalVectorStores
from ingest.library_uploads import LocalUploads
from ingest.stores_ledger import StoresLedger
from ingest.texts import TextStore, upload_key
from ingest.uploads_ledger import UploadsLedger
from retrieval.api import (
    Searcher,
    SearchRequest,
    SearchResult,
    SearchUnavailable,
    check_query,
)

logger = logging.getLogger(__name__)

MAX_FILE_BYTES = 512 << 20


class InlineSide(Protocol):
    async def search_inline(self, request: InlineSearch) -> SearchResult: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryParts:
    """What a library works with. `nudge` tells a worker that a job waits; it may fail unseen."""

    ledger: Ledger
    stores: StoresLedger
    uploads: UploadsLedger
    blobs: BlobStore
    texts: TextStore
    searcher: Searcher
    inline: InlineSide
    nudge: Callable[[], Awaitable[None]]
    max_file_bytes: int = MAX_FILE_BYTES

    def for_tenant(self, tenant: str) -> "LibraryParts":
        return replace(
            self,
            ledger=self.ledger.for_tenant(tenant),
            stores=self.stores.for_tenant(tenant),
            uploads=self.uploads.for_tenant(tenant),
        )


class LocalLibrary:
    """Ingest and removal are jobs for the worker; everything else happens here."""

    def __init__(
        self,
        parts: LibraryParts,
        *,
        clock: Callable[[], float] = time.time,
        tenant: str = LOCAL,
    ) -> None:
        self._parts = parts = parts.for_tenant(tenant)
        self._clock = clock
        self._stores = LocalVectorStores(parts.stores, parts.searcher, self._nudge)
        self._uploads = LocalUploads(parts.uploads, parts.blobs, self._nudge, clock=clock)

    def for_tenant(self, tenant: str) -> "LocalLibrary":
        return LocalLibrary(self._parts, clock=self._clock, tenant=tenant)

    @property
    def stores(self) -> LocalVectorStores:
        return self._stores

    @property
    def uploads(self) -> LocalUploads:
        return self._uploads

    async def add(
        self,
        *,
        filename: str,
        purpose: str,
        body: AsyncIterator[bytes],
        expires_after_s: int | None = None,
    ) -> FileRecord:
        file_id = new_file_id()
        key = upload_key(file_id)
        blobs = self._parts.blobs
        stored = await blobs.put_stream(key, body, limit_bytes=self._parts.max_file_bytes)
        now = int(self._clock())
        record = FileRecord(
            id=file_id,
            filename=filename,
            purpose=purpose,
            num_bytes=stored.num_bytes,
            digest=stored.digest,
            created_at=now,
            expires_at=None if expires_after_s is None else now + expires_after_s,
            status=first_status(purpose),
        )
        try:
            await self._parts.ledger.add(record)
        except TransientError:
            with suppress(TransientError):
                await blobs.delete(key)
            raise
        await self._nudge()
        return record

    async def get(self, file_id: str) -> FileRecord:
        return (await self._parts.ledger.get(file_id)).record

    async def list(
        self, *, after: str | None, limit: int, ascending: bool, purpose: str | None
    ) -> FilePage:
        return await self._parts.ledger.page(
            after=after, limit=limit, ascending=ascending, purpose=purpose
        )

    async def content(self, file_id: str) -> AsyncIterator[bytes]:
        await self.get(file_id)
        try:
            async for piece in self._parts.blobs.get(upload_key(file_id)):
                yield piece
        except BlobMissing as error:
            raise FileMissing(file_id) from error

    async def delete(self, file_id: str) -> None:
        await self._parts.ledger.tombstone(file_id, self._clock())
        await self._nudge()

    async def text(self, file_id: str) -> StoredText:
        record = await self.get(file_id)
        refuse_unprocessed(record)
        try:
            kept = await self._parts.texts.get(file_id)
        except BlobMissing as error:
            raise FileMissing(file_id) from error
        return StoredText(file_id, record.filename, kept.text)

    async def search(self, request: SearchRequest) -> SearchResult:
        check_query(request.query)
        scope = request.document_ids
        if scope is not None:
            scope = await self._visible(scope)
            if not scope:
                return SearchResult(passages=[], evidence=0.0, num_searched=0, seconds=0.0)
        found = await self._parts.searcher.search(replace(request, document_ids=scope))
        still = set(await self._visible({passage.document_id for passage in found.passages}))
        kept = [passage for passage in found.passages if passage.document_id in still]
        return replace(found, passages=kept, evidence=found.evidence if kept else 0.0)

    async def search_inline(self, request: InlineSearch) -> SearchResult:
        check_query(request.query)
        return await self._parts.inline.search_inline(request)

    async def _visible(self, file_ids: Collection[str]) -> builtins.list[str]:
        """In the order given: those that are processed now, and not deleted."""
        living = await self._parts.ledger.searchable(file_ids)
        return [file_id for file_id in dict.fromkeys(file_ids) if file_id in living]

    async def _nudge(self) -> None:
        try:
            await self._parts.nudge()
        except SearchUnavailable as error:
            logger.info("no worker to nudge", extra={"cause": str(error)})
