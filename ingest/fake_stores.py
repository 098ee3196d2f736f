"""`VectorStores` in memory for other packages' tests: files are indexed with the library."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from ingest.api import FailureCode, FileMissing, FileRecord, FileStatus
from ingest.library_stores import merged
from ingest.stores_api import (
    BatchMissing,
    FileCounts,
    NewStoreFile,
    NewVectorStore,
    Page,
    PageRequest,
    StoreBatch,
    StoreChanges,
    StoreFile,
    StoreFileStatus,
    StoreFound,
    StoreSearch,
    StoreStatus,
    VectorStoreExpired,
    VectorStoreMissing,
    VectorStoreRecord,
)
from ingest.stores_ledger import Shown
from ingest.stores_rows import batch_status, end_of, new_id
from retrieval.api import Attribute, SearchResult, check_query
from retrieval.filters import check_filter

Item = TypeVar("Item")
SearchTexts = Callable[[Mapping[str, str], str, int], SearchResult]


@dataclass(slots=True)
class FakeMember:
    new: NewStoreFile
    created_at: int
    batch_id: str | None = None
    is_cancelled: bool = False


@dataclass(slots=True)
class FakeBatch:
    created_at: int
    is_cancelled: bool = False


@dataclass(slots=True)
class FakeStore:
    record: VectorStoreRecord
    members: dict[str, FakeMember] = field(default_factory=dict)
    batches: dict[str, FakeBatch] = field(default_factory=dict)


class FakeVectorStores:
    def __init__(
        self,
        find: Callable[[str], FileRecord],
        text_of: Callable[[str], str],
        search: SearchTexts,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._find = find
        self._text_of = text_of
        self._search = search
        self._clock = clock
        self._stores: dict[str, FakeStore] = {}

    async def create(self, new: NewVectorStore) -> VectorStoreRecord:
        for each in new.files:
            self._find(each.file_id)
        now = self._clock()
        record = VectorStoreRecord(
            id=new_id("vs"),
            name=new.name,
            description=new.description,
            metadata=new.metadata,
            created_at=int(now),
            last_active_at=int(now),
            expires_after_days=new.expires_after_days,
            expires_at=end_of(now, new.expires_after_days),
            status=StoreStatus.COMPLETED,
            counts=FileCounts(),
            usage_bytes=0,
        )
        store = self._stores[record.id] = FakeStore(record)
        self._attach(store, new.files, None)
        return await self.get(record.id)

    async def get(self, store_id: str) -> VectorStoreRecord:
        return self._record(self._store(store_id))

    async def list(self, request: PageRequest) -> Page[VectorStoreRecord]:
        found = _page(list(self._stores), request, self._missing_store)
        return replace_items(found, [self._record(self._stores[one]) for one in found.items])

    async def update(self, store_id: str, changes: StoreChanges) -> VectorStoreRecord:
        store = self._open(store_id)
        if changes.name is not None:
            store.record = replace(store.record, name=changes.name)
        if changes.metadata is not None:
            store.record = replace(store.record, metadata=changes.metadata)
        if changes.expires_after_days is not None:
            days = changes.expires_after_days or None
            store.record = replace(store.record, expires_after_days=days)
        self._touch(store)
        return self._record(store)

    async def delete(self, store_id: str) -> None:
        self._store(store_id)
        del self._stores[store_id]

    async def add_file(self, store_id: str, new: NewStoreFile) -> StoreFile:
        store = self._open(store_id)
        self._find(new.file_id)
        self._attach(store, [new], None)
        return await self.get_file(store_id, new.file_id)

    async def add_batch(self, store_id: str, files: Sequence[NewStoreFile]) -> StoreBatch:
        store = self._open(store_id)
        for each in files:
            self._find(each.file_id)
        batch_id = new_id("vsfb")
        store.batches[batch_id] = FakeBatch(int(self._clock()))
        self._attach(store, files, batch_id)
        return await self.get_batch(store_id, batch_id)

    async def get_batch(self, store_id: str, batch_id: str) -> StoreBatch:
        store = self._open(store_id)
        batch = _batch(store, batch_id)
        files = self._files(store).values()
        mine = [one for one in files if store.members[one.file_id].batch_id == batch_id]
        counts = _counts(mine)
        return StoreBatch(
            id=batch_id,
            store_id=store_id,
            created_at=batch.created_at,
            status=batch_status(counts, is_cancelled=batch.is_cancelled),
            counts=counts,
        )

    async def cancel_batch(self, store_id: str, batch_id: str) -> StoreBatch:
        store = self._open(store_id)
        batch = _batch(store, batch_id)
        for file in self._files(store).values():
            member = store.members[file.file_id]
            is_running = file.status is StoreFileStatus.IN_PROGRESS
            if member.batch_id == batch_id and is_running:
                member.is_cancelled = batch.is_cancelled = True
        return await self.get_batch(store_id, batch_id)

    async def get_file(self, store_id: str, file_id: str) -> StoreFile:
        files = self._files(self._open(store_id))
        if file_id not in files:
            raise FileMissing(file_id)
        return files[file_id]

    async def list_files(
        self,
        store_id: str,
        request: PageRequest,
        *,
        status: StoreFileStatus | None = None,
        batch_id: str | None = None,
    ) -> Page[StoreFile]:
        store = self._open(store_id)
        files = self._files(store)
        if batch_id is not None:
            _batch(store, batch_id)
        for cursor in (request.after, request.before):
            if cursor is not None and cursor not in files:
                raise FileMissing(cursor)
        wanted = {
            one: file
            for one, file in files.items()
            if status in (None, file.status) and batch_id in (None, store.members[one].batch_id)
        }
        places = [one for one in files if one in wanted or one in (request.after, request.before)]
        found = _page(places, request, FileMissing, keep=wanted)
        return replace_items(found, [files[one] for one in found.items])

    async def update_file(
        self, store_id: str, file_id: str, attributes: Mapping[str, Attribute]
    ) -> StoreFile:
        await self.get_file(store_id, file_id)
        member = self._stores[store_id].members[file_id]
        member.new = replace(member.new, attributes=attributes)
        return await self.get_file(store_id, file_id)

    async def remove_file(self, store_id: str, file_id: str) -> None:
        await self.get_file(store_id, file_id)
        del self._stores[store_id].members[file_id]

    async def search(self, store_id: str, request: StoreSearch) -> StoreFound:
        for query in request.queries:
            check_query(query)
        if request.filter is not None:
            check_filter(request.filter)
        store = self._open(store_id)
        self._touch(store)
        done = {
            one: file
            for one, file in self._files(store).items()
            if file.status is StoreFileStatus.COMPLETED
        }
        texts = {one: self._text_of(one) for one in done}
        results = [self._search(texts, query, len(texts) * 1000) for query in request.queries]
        shown = {
            one: Shown(self._find(one).filename, file.attributes) for one, file in done.items()
        }
        return merged(results, shown, request)

    def _store(self, store_id: str) -> FakeStore:
        if store_id not in self._stores:
            raise VectorStoreMissing(store_id)
        return self._stores[store_id]

    def _missing_store(self, store_id: str) -> VectorStoreMissing:
        return VectorStoreMissing(store_id)

    def _open(self, store_id: str) -> FakeStore:
        store = self._store(store_id)
        end = store.record.expires_at
        if end is not None and end <= self._clock():
            raise VectorStoreExpired(store_id, expired_at=end)
        return store

    def _touch(self, store: FakeStore) -> None:
        now = self._clock()
        store.record = replace(
            store.record,
            last_active_at=int(now),
            expires_at=end_of(now, store.record.expires_after_days),
        )

    def _attach(self, store: FakeStore, new: Sequence[NewStoreFile], batch_id: str | None) -> None:
        for each in new:
            store.members[each.file_id] = FakeMember(each, int(self._clock()), batch_id)
        self._touch(store)

    def _record(self, store: FakeStore) -> VectorStoreRecord:
        end = store.record.expires_at
        if end is not None and end <= self._clock():
            return replace(store.record, status=StoreStatus.EXPIRED)
        files = list(self._files(store).values())
        counts = _counts(files)
        status = StoreStatus.IN_PROGRESS if counts.in_progress else StoreStatus.COMPLETED
        usage = sum(one.usage_bytes for one in files)
        return replace(store.record, status=status, counts=counts, usage_bytes=usage)

    def _files(self, store: FakeStore) -> dict[str, StoreFile]:
        found: dict[str, StoreFile] = {}
        for file_id, member in store.members.items():
            try:
                record = self._find(file_id)
            except FileMissing:
                continue
            found[file_id] = _store_file(store.record.id, member, record)
        return found


def _store_file(store_id: str, member: FakeMember, record: FileRecord) -> StoreFile:
    status = {
        FileStatus.PROCESSED: StoreFileStatus.COMPLETED,
        FileStatus.ERROR: StoreFileStatus.FAILED,
    }.get(record.status, StoreFileStatus.IN_PROGRESS)
    if member.is_cancelled:
        status = StoreFileStatus.CANCELLED
    is_failed = status is StoreFileStatus.FAILED
    is_done = status is StoreFileStatus.COMPLETED
    return StoreFile(
        store_id=store_id,
        file_id=record.id,
        created_at=member.created_at,
        status=status,
        attributes=member.new.attributes,
        chunking=member.new.chunking,
        cause=record.cause if is_failed else None,
        failure=FailureCode.INVALID_FILE if is_failed else None,
        num_chunks=(record.num_chunks or 0) if is_done else 0,
        usage_bytes=record.num_bytes if is_done else 0,
    )


def _counts(files: Sequence[StoreFile]) -> FileCounts:
    names = [one.status.value for one in files]
    return FileCounts(**{name: names.count(name) for name in set(names)})


def _batch(store: FakeStore, batch_id: str) -> FakeBatch:
    if batch_id not in store.batches:
        raise BatchMissing(batch_id)
    return store.batches[batch_id]


def _page(
    ids: Sequence[str],
    request: PageRequest,
    missing: Callable[[str], Exception],
    *,
    keep: Mapping[str, object] | None = None,
) -> Page[str]:
    ordered = list(ids) if request.ascending else list(ids)[::-1]
    first, last = 0, len(ordered)
    for cursor in (request.after, request.before):
        if cursor is not None and cursor not in ordered:
            raise missing(cursor)
    if request.after is not None:
        first = ordered.index(request.after) + 1
    if request.before is not None:
        last = ordered.index(request.before)
    run = [one for one in ordered[first:last] if keep is None or one in keep]
    is_backward = request.before is not None and request.after is None
    shown = run[-request.limit :] if is_backward else run[: request.limit]
    return Page(items=shown, has_more=len(run) > len(shown))


def replace_items(page: Page[str], items: Sequence[Item]) -> Page[Item]:
    return Page(items=items, has_more=page.has_more)
