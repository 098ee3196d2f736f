"""Files in vector stores as the worker sees them: what to index, and what became of it.

Every change is one guarded UPDATE: work done for an older revision of a row changes nothing.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from sqlalchemy import ColumnElement, Connection, delete, exists, select, update

from ingest.api import FailureCode, Stage
from ingest.database import Database
from ingest.schema import batches, files, jobs, store_files, vector_stores
from ingest.stores_api import Chunking, StoreFileStatus
from ingest.stores_rows import decode_attributes, empty_store
from retrieval.api import Attribute


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """`is_wanted`: the row asks for chunks in the index; else there shall be none."""

    store_id: str
    file_id: str
    revision: str
    status: StoreFileStatus
    generation: str | None
    attributes: Mapping[str, Attribute]
    chunking: Chunking
    is_wanted: bool
    is_removed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    generation: str
    num_chunks: int
    usage_bytes: int


class Placements:
    def __init__(self, database: Database, *, clock: Callable[[], float]) -> None:
        self._database = database
        self._clock = clock

    async def get(self, store_id: str, file_id: str) -> Placement | None:
        """None: the row is gone, so nothing shall be in the index."""
        now = self._clock()
        statement = (
            select(
                store_files,
                vector_stores.c.expires_at,
                vector_stores.c.deleted_at,
                files.c.deleted_at.label("file_deleted_at"),
            )
            .join(vector_stores, vector_stores.c.id == store_files.c.store_id)
            .join(files, files.c.id == store_files.c.file_id)
            .where(store_files.c.store_id == store_id, store_files.c.file_id == file_id)
        )
        row = await self._database.run(lambda connection: connection.execute(statement).first())
        if row is None:
            return None
        is_expired = row.expires_at is not None and row.expires_at <= now
        ends = (row.removed_at, row.deleted_at, row.file_deleted_at)
        is_removed = is_expired or any(end is not None for end in ends)
        status = StoreFileStatus(row.status)
        live = (StoreFileStatus.IN_PROGRESS, StoreFileStatus.COMPLETED)
        return Placement(
            store_id=store_id,
            file_id=file_id,
            revision=row.revision,
            status=status,
            generation=row.generation,
            attributes=decode_attributes(row.attributes),
            chunking=Chunking(max_tokens=row.max_tokens, overlap_tokens=row.overlap_tokens),
            is_wanted=status in live and not is_removed,
            is_removed=is_removed,
        )

    async def begin(self, placement: Placement) -> bool:
        return await self._change(
            placement, stage=Stage.INDEXING, attempts=store_files.c.attempts + 1
        )

    async def reach(self, placement: Placement, stage: Stage) -> None:
        await self._change(placement, stage=stage)

    async def finish(self, placement: Placement, placed: Placed) -> bool:
        """False when the row asks for something else by now; its own job is queued."""
        return await self._change(
            placement,
            status=StoreFileStatus.COMPLETED,
            stage=Stage.DONE,
            cause=None,
            failure=None,
            generation=placed.generation,
            num_chunks=placed.num_chunks,
            usage_bytes=placed.usage_bytes,
        )

    async def confirm(self, placement: Placement) -> None:
        """What the row asks for is in the index already."""
        await self._change(placement, status=StoreFileStatus.COMPLETED, stage=Stage.DONE)

    async def fail(self, store_id: str, file_id: str, cause: str, failure: FailureCode) -> None:
        """A file IN_PROGRESS becomes FAILED."""
        running = (
            (store_files.c.store_id == store_id)
            & (store_files.c.file_id == file_id)
            & (store_files.c.status == StoreFileStatus.IN_PROGRESS)
        )
        failed = (
            update(store_files)
            .where(running)
            .values(status=StoreFileStatus.FAILED, cause=cause, failure=failure)
        )
        await self._database.run(lambda connection: connection.execute(failed))

    async def cleared(self, placement: Placement) -> None:
        """The index holds nothing of it: forget a removed row, mark another."""
        same = (
            (store_files.c.store_id == placement.store_id)
            & (store_files.c.file_id == placement.file_id)
            & (store_files.c.revision == placement.revision)
        )
        if placement.is_removed:
            await self._database.run(lambda c: c.execute(delete(store_files).where(same)))
            return
        marked = (
            update(store_files)
            .where(same)
            .values(cleared_at=self._clock(), generation=None, num_chunks=0, usage_bytes=0)
        )
        await self._database.run(lambda connection: connection.execute(marked))

    async def empty_expired(self) -> int:
        """Remove the files of stores whose time has come; returns how many stores."""
        now = self._clock()
        ended = (
            select(vector_stores.c.id)
            .join(store_files, store_files.c.store_id == vector_stores.c.id)
            .where(vector_stores.c.expires_at <= now, store_files.c.removed_at.is_(None))
            .distinct()
        )
        store_ids = await self._database.run(lambda c: list(c.execute(ended).scalars()))
        for store_id in store_ids:
            await self._database.run(partial(empty_store, store_id=store_id, now=now))
        return len(store_ids)

    async def trim_stores(self) -> int:
        """Forget deleted stores that hold no file any more; returns how many."""
        is_used = exists().where(store_files.c.store_id == vector_stores.c.id)
        has_jobs = exists().where(jobs.c.collection == vector_stores.c.id)
        gone = vector_stores.c.deleted_at.is_not(None) & ~is_used & ~has_jobs
        return await self._database.run(lambda connection: _forget_stores(connection, gone))

    async def _change(self, placement: Placement, **values: object) -> bool:
        statement = (
            update(store_files)
            .where(
                store_files.c.store_id == placement.store_id,
                store_files.c.file_id == placement.file_id,
                store_files.c.revision == placement.revision,
                store_files.c.removed_at.is_(None),
            )
            .values(values)
        )
        return await self._database.run(
            lambda connection: connection.execute(statement).rowcount == 1
        )


def _forget_stores(connection: Connection, gone: ColumnElement[bool]) -> int:
    ids = select(vector_stores.c.id).where(gone)
    connection.execute(delete(batches).where(batches.c.store_id.in_(ids)))
    return connection.execute(delete(vector_stores).where(gone)).rowcount
