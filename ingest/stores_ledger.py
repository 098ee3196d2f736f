"""What vector stores, their files and batches are, as rows. Knows states, not how files are read.

Whoever changes what a store shall hold also queues the job that makes it so, both or neither.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, insert, select, update

from ingest.api import LOCAL
from ingest.database import Database
from ingest.jobs import JobKind, insert_job
from ingest.ledger import IDS_PER_QUERY, lock_living, owned_by
from ingest.paging import page_rows
from ingest.schema import batches, files, store_files, vector_stores
from ingest.stores_api import (
    NewStoreFile,
    NewVectorStore,
    Page,
    PageRequest,
    StoreBatch,
    StoreChanges,
    StoreFile,
    StoreFileStatus,
    VectorStoreMissing,
    VectorStoreRecord,
)
from ingest.stores_rows import (
    attach_files,
    batch_counts,
    batch_of,
    batch_row,
    decode_attributes,
    empty_store,
    encode,
    end_of,
    in_store,
    is_shown,
    living_row,
    living_store,
    lock_open,
    new_id,
    new_revision,
    refuse_expired,
    set_file,
    store_file_of,
    store_of,
    totals_of,
    touch_store,
)
from retrieval.api import Attribute


@dataclass(frozen=True, slots=True)
class Shown:
    """What a hit may say of its file."""

    filename: str
    attributes: Mapping[str, Attribute]


class StoresLedger:
    """`clock` tells when a store with an end has reached it. A ledger with a `tenant` knows the
    stores and the files of that tenant only."""

    def __init__(
        self, database: Database, *, clock: Callable[[], float], tenant: str | None = None
    ) -> None:
        self._database = database
        self._clock = clock
        self._tenant = tenant

    def for_tenant(self, tenant: str) -> "StoresLedger":
        return StoresLedger(self._database, clock=self._clock, tenant=tenant)

    async def create(self, new: NewVectorStore) -> str:
        """Raises FileMissing, having created nothing."""
        now = self._clock()
        store_id = new_id("vs")

        def work(connection: Connection) -> None:
            lock_living(connection, {each.file_id for each in new.files}, now, self._tenant)
            connection.execute(
                insert(vector_stores).values(
                    id=store_id,
                    name=new.name,
                    description=new.description,
                    metadata=encode(new.metadata),
                    created_at=int(now),
                    last_active_at=int(now),
                    expires_after_days=new.expires_after_days,
                    expires_at=end_of(now, new.expires_after_days),
                    tenant=self._tenant or LOCAL,
                )
            )
            attach_files(connection, store_id, new.files, now, None)

        await self._database.run(work)
        return store_id

    async def get(self, store_id: str) -> VectorStoreRecord:
        now = self._clock()

        def work(connection: Connection) -> VectorStoreRecord:
            row = living_store(connection, store_id, self._tenant)
            return store_of(row, totals_of(connection, [store_id]).get(store_id), now)

        return await self._database.run(work)

    async def page(self, request: PageRequest) -> Page[VectorStoreRecord]:
        """Raises VectorStoreMissing for an unknown cursor."""
        now = self._clock()

        def work(connection: Connection) -> Page[VectorStoreRecord]:
            def place_of(store_id: str) -> int:
                return int(living_store(connection, store_id, self._tenant).seq)

            statement = select(vector_stores).where(
                vector_stores.c.deleted_at.is_(None), self._owned()
            )
            rows, has_more = page_rows(
                connection, statement, vector_stores.c.seq, request, place_of
            )
            totals = totals_of(connection, [row.id for row in rows])
            items = [store_of(row, totals.get(row.id), now) for row in rows]
            return Page(items=items, has_more=has_more)

        return await self._database.run(work)

    async def update(self, store_id: str, changes: StoreChanges) -> None:
        now = self._clock()

        def work(connection: Connection) -> None:
            row = lock_open(connection, store_id, now, self._tenant)
            values: dict[str, object] = {}
            if changes.name is not None:
                values["name"] = changes.name
            if changes.metadata is not None:
                values["metadata"] = encode(changes.metadata)
            days = row.expires_after_days
            if changes.expires_after_days is not None:
                days = changes.expires_after_days or None
                values["expires_after_days"] = days
            touch_store(connection, store_id, days, now, **values)

        await self._database.run(work)

    async def touch(self, store_id: str) -> None:
        """The store is used: its end moves."""
        now = self._clock()

        def work(connection: Connection) -> None:
            row = lock_open(connection, store_id, now, self._tenant)
            touch_store(connection, store_id, row.expires_after_days, now)

        await self._database.run(work)

    async def delete(self, store_id: str) -> None:
        now = self._clock()

        def work(connection: Connection) -> None:
            living = (vector_stores.c.id == store_id) & vector_stores.c.deleted_at.is_(None)
            ended = update(vector_stores).where(living, self._owned()).values(deleted_at=now)
            if connection.execute(ended).rowcount != 1:
                raise VectorStoreMissing(store_id)
            empty_store(connection, store_id, now)

        await self._database.run(work)

    async def attach(
        self, store_id: str, new: Sequence[NewStoreFile], *, as_batch: bool
    ) -> str | None:
        """All files or none; the id of the batch, if it is one. Raises FileMissing."""
        now = self._clock()
        batch_id = new_id("vsfb") if as_batch else None

        def work(connection: Connection) -> None:
            row = lock_open(connection, store_id, now, self._tenant)
            lock_living(connection, {each.file_id for each in new}, now, self._tenant)
            if batch_id is not None:
                connection.execute(
                    insert(batches).values(id=batch_id, store_id=store_id, created_at=int(now))
                )
            attach_files(connection, store_id, new, now, batch_id)
            touch_store(connection, store_id, row.expires_after_days, now)

        await self._database.run(work)
        return batch_id

    async def get_file(self, store_id: str, file_id: str) -> StoreFile:
        """Raises FileMissing."""
        now = self._clock()

        def work(connection: Connection) -> StoreFile:
            refuse_expired(living_store(connection, store_id, self._tenant), now)
            return store_file_of(living_row(connection, store_id, file_id, now))

        return await self._database.run(work)

    async def page_files(
        self,
        store_id: str,
        request: PageRequest,
        *,
        status: StoreFileStatus | None,
        batch_id: str | None,
    ) -> Page[StoreFile]:
        """Raises FileMissing for an unknown cursor, BatchMissing for an unknown batch."""
        now = self._clock()

        def work(connection: Connection) -> Page[StoreFile]:
            refuse_expired(living_store(connection, store_id, self._tenant), now)
            statement = in_store(store_id, now)
            if batch_id is not None:
                batch_row(connection, store_id, batch_id)
                statement = statement.where(store_files.c.batch_id == batch_id)
            if status is not None:
                statement = statement.where(store_files.c.status == status)

            def place_of(file_id: str) -> int:
                return int(living_row(connection, store_id, file_id, now).seq)

            rows, has_more = page_rows(connection, statement, store_files.c.seq, request, place_of)
            return Page(items=[store_file_of(row) for row in rows], has_more=has_more)

        return await self._database.run(work)

    async def set_attributes(
        self, store_id: str, file_id: str, attributes: Mapping[str, Attribute]
    ) -> None:
        """The file is IN_PROGRESS until it is indexed with them, unless it FAILED or was
        CANCELLED. Raises FileMissing."""
        now = self._clock()

        def work(connection: Connection) -> None:
            lock_open(connection, store_id, now, self._tenant)
            row = living_row(connection, store_id, file_id, now)
            values: dict[str, object] = {"attributes": encode(attributes)}
            is_indexed = row.status in (StoreFileStatus.COMPLETED, StoreFileStatus.IN_PROGRESS)
            if is_indexed:
                values |= {"status": StoreFileStatus.IN_PROGRESS, "revision": new_revision()}
                insert_job(connection, file_id, JobKind.PLACE, now, store_id)
            set_file(connection, store_id, file_id, **values)

        await self._database.run(work)

    async def detach(self, store_id: str, file_id: str) -> None:
        """Raises FileMissing."""
        now = self._clock()

        def work(connection: Connection) -> None:
            lock_open(connection, store_id, now, self._tenant)
            living_row(connection, store_id, file_id, now)
            set_file(connection, store_id, file_id, removed_at=now)
            insert_job(connection, file_id, JobKind.PLACE, now, store_id)

        await self._database.run(work)

    async def get_batch(self, store_id: str, batch_id: str) -> StoreBatch:
        """Raises BatchMissing."""
        now = self._clock()

        def work(connection: Connection) -> StoreBatch:
            refuse_expired(living_store(connection, store_id, self._tenant), now)
            row = batch_row(connection, store_id, batch_id)
            return batch_of(row, batch_counts(connection, batch_id))

        return await self._database.run(work)

    async def cancel_batch(self, store_id: str, batch_id: str) -> None:
        """Raises BatchMissing."""
        now = self._clock()

        def work(connection: Connection) -> None:
            lock_open(connection, store_id, now, self._tenant)
            batch_row(connection, store_id, batch_id)
            running = (
                (store_files.c.batch_id == batch_id)
                & (store_files.c.status == StoreFileStatus.IN_PROGRESS)
                & store_files.c.removed_at.is_(None)
            )
            cancelled = (
                update(store_files)
                .where(running)
                .values(status=StoreFileStatus.CANCELLED, revision=new_revision())
            )
            returned = connection.execute(cancelled.returning(store_files.c.file_id))
            stopped = list(returned.scalars())
            for file_id in stopped:
                insert_job(connection, file_id, JobKind.PLACE, now, store_id)
            if stopped:
                ended = update(batches).where(batches.c.id == batch_id)
                connection.execute(ended.values(cancelled_at=now))

        await self._database.run(work)

    def _owned(self) -> ColumnElement[bool]:
        return owned_by(vector_stores.c.tenant, self._tenant)

    async def scope(self, store_id: str) -> Sequence[str] | None:
        """Which files may be found: None is all that the index holds of this collection."""
        now = self._clock()

        def work(connection: Connection) -> Sequence[str] | None:
            refuse_expired(living_store(connection, store_id, self._tenant), now)
            joined = store_files.join(files, files.c.id == store_files.c.file_id)
            hidden = (
                select(store_files.c.file_id)
                .select_from(joined)
                .where(
                    store_files.c.store_id == store_id,
                    store_files.c.cleared_at.is_(None),
                    ~is_shown(now),
                )
            )
            if connection.execute(hidden.limit(1)).first() is None:
                return None
            shown = select(store_files.c.file_id).select_from(joined)
            shown = shown.where(store_files.c.store_id == store_id, is_shown(now))
            return list(connection.execute(shown).scalars())

        return await self._database.run(work)

    async def shown(self, store_id: str, file_ids: Collection[str]) -> dict[str, Shown]:
        """Those of `file_ids` that may be found in the store at this moment."""
        now = self._clock()
        wanted = list(dict.fromkeys(file_ids))

        def work(connection: Connection) -> dict[str, Shown]:
            found: dict[str, Shown] = {}
            for first in range(0, len(wanted), IDS_PER_QUERY):
                statement = (
                    select(store_files.c.file_id, files.c.filename, store_files.c.attributes)
                    .join(files, files.c.id == store_files.c.file_id)
                    .where(
                        store_files.c.store_id == store_id,
                        store_files.c.file_id.in_(wanted[first : first + IDS_PER_QUERY]),
                        is_shown(now),
                    )
                )
                for row in connection.execute(statement):
                    found[row.file_id] = Shown(row.filename, decode_attributes(row.attributes))
            return found

        return await self._database.run(work)
