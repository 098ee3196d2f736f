"""What became of every file. Knows states and their order, not how a file is read or searched."""

import secrets
import string
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import msgspec
from sqlalchemy import (
    BindParameter,
    Column,
    ColumnElement,
    Connection,
    Float,
    Row,
    and_,
    bindparam,
    delete,
    exists,
    insert,
    or_,
    select,
    true,
    update,
)

from ingest.api import FailureCode, FileMissing, FilePage, FileRecord, FileStatus, Stage
from ingest.database import Database
from ingest.jobs import JobKind, drop_waiting_ingest, insert_job
from ingest.paging import page_rows
from ingest.schema import files, jobs, store_files
from ingest.stores_api import PageRequest

ID_CHARS = string.ascii_letters + string.digits
IDS_PER_QUERY = 500


@dataclass(frozen=True, slots=True)
class Entry:
    """A file that is not deleted, and the generation that its chunks in the index have."""

    record: FileRecord
    generation: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a finished ingest reports."""

    generation: str
    num_chars: int
    num_chunks: int
    text_digest: str
    notes: tuple[str, ...] = ()


class Ledger:
    """Every change is one guarded UPDATE, so work done twice or too late changes nothing.

    `clock` tells when a file with an end has reached it: from then on it is missing. A ledger
    with a `tenant` adds for it and shows and deletes nothing else.
    """

    def __init__(
        self,
        database: Database,
        *,
        clock: Callable[[], float] = time.time,
        tenant: str | None = None,
    ) -> None:
        self._database = database
        self._clock = clock
        self._tenant = tenant

    def for_tenant(self, tenant: str) -> "Ledger":
        return Ledger(self._database, clock=self._clock, tenant=tenant)

    async def add(self, record: FileRecord) -> None:
        """Enter a new file and queue its ingest, both or neither."""
        if self._tenant is not None:
            record = replace(record, tenant=self._tenant)
        await self._database.run(
            lambda connection: insert_file(connection, record, record.created_at)
        )

    async def get(self, file_id: str) -> Entry:
        """Raises FileMissing, also for a deleted file."""
        statement = select(files).where(files.c.id == file_id, self._living(self._clock()))
        row = await self._database.run(lambda connection: connection.execute(statement).first())
        if row is None:
            raise FileMissing(file_id)
        return Entry(record_of(row), row.generation)

    async def page(
        self, *, after: str | None, limit: int, ascending: bool, purpose: str | None
    ) -> FilePage:
        """Raises FileMissing when `after` is unknown."""

        now = self._clock()
        request = PageRequest(after=after, limit=limit, ascending=ascending)

        def work(connection: Connection) -> FilePage:
            statement = select(files).where(self._living(now))
            if purpose is not None:
                statement = statement.where(files.c.purpose == purpose)

            def place_of(file_id: str) -> int:
                return _place(connection, file_id, self._living(now))

            rows, has_more = page_rows(connection, statement, files.c.seq, request, place_of)
            return FilePage(files=[record_of(row) for row in rows], has_more=has_more)

        return await self._database.run(work)

    async def searchable(self, file_ids: Collection[str]) -> set[str]:
        """Those of `file_ids` that are processed and not deleted."""
        wanted = list(dict.fromkeys(file_ids))
        now = self._clock()

        def work(connection: Connection) -> set[str]:
            found: set[str] = set()
            for first in range(0, len(wanted), IDS_PER_QUERY):
                statement = select(files.c.id).where(
                    files.c.id.in_(wanted[first : first + IDS_PER_QUERY]),
                    files.c.status == FileStatus.PROCESSED,
                    self._living(now),
                )
                found.update(connection.execute(statement).scalars())
            return found

        return await self._database.run(work)

    async def begin(self, file_id: str) -> Entry | None:
        """UPLOADED or IN_PROGRESS becomes IN_PROGRESS, one attempt more; None for all else."""
        values = {"file_id": file_id, "now": self._clock()}
        row = await self._database.run(
            lambda connection: connection.execute(_BEGIN, values).first()
        )
        return None if row is None else Entry(record_of(row), row.generation)

    async def reach(self, file_id: str, stage: Stage) -> None:
        """Say how far the attempt has come."""
        values = {"file_id": file_id, "reached": stage}
        await self._database.run(lambda connection: connection.execute(_REACH, values))

    async def finish(self, file_id: str, outcome: Outcome) -> bool:
        """IN_PROGRESS (or PROCESSED, of an older generation) becomes PROCESSED."""
        return await self._change(
            file_id,
            files.c.status.in_([FileStatus.IN_PROGRESS, FileStatus.PROCESSED]),
            status=FileStatus.PROCESSED,
            stage=Stage.DONE,
            cause=None,
            failure=None,
            text_digest=outcome.text_digest,
            generation=outcome.generation,
            num_chars=outcome.num_chars,
            num_chunks=outcome.num_chunks,
            notes=msgspec.json.encode(outcome.notes).decode(),
        )

    async def fail(
        self, file_id: str, cause: str, failure: FailureCode = FailureCode.INVALID_FILE
    ) -> bool:
        """A file that is not PROCESSED becomes ERROR."""
        return await self._change(
            file_id,
            files.c.status.in_(_UNFINISHED),
            status=FileStatus.ERROR,
            cause=cause,
            failure=failure,
        )

    async def tombstone(self, file_id: str, now: float) -> None:
        """Make the file invisible, here and in every vector store, and queue the removal of all
        it left. Raises FileMissing."""
        if not await self._database.run(
            lambda connection: tombstone_file(connection, file_id, now, self._tenant)
        ):
            raise FileMissing(file_id)

    async def tombstone_expired(self, now: float) -> int:
        """The same for files whose time has come; returns how many."""
        ended = select(files.c.id).where(files.c.deleted_at.is_(None), files.c.expires_at <= now)
        file_ids = await self._database.run(lambda c: list(c.execute(ended).scalars()))
        for file_id in file_ids:
            with suppress(FileMissing):
                await self.tombstone(file_id, now)
        return len(file_ids)

    async def trim(self, purged_before: float) -> int:
        """Forget files of which nothing is left; returns how many."""
        is_in_use = or_(
            exists().where(jobs.c.file_id == files.c.id),
            exists().where(store_files.c.file_id == files.c.id),
        )
        statement = delete(files).where(files.c.purged_at < purged_before, ~is_in_use)
        return await self._database.run(lambda connection: connection.execute(statement).rowcount)

    async def known(self, file_ids: Collection[str]) -> set[str]:
        """Those of `file_ids` that may own blobs: all but the purged."""
        wanted = list(dict.fromkeys(file_ids))

        def work(connection: Connection) -> set[str]:
            found: set[str] = set()
            for first in range(0, len(wanted), IDS_PER_QUERY):
                statement = select(files.c.id).where(
                    files.c.id.in_(wanted[first : first + IDS_PER_QUERY]),
                    files.c.purged_at.is_(None),
                )
                found.update(connection.execute(statement).scalars())
            return found

        return await self._database.run(work)

    async def digest(self, file_id: str) -> str:
        """The digest of a file's bytes, also of a deleted file's; empty when it was never here."""
        statement = select(files.c.digest).where(files.c.id == file_id)
        found = await self._database.run(lambda connection: connection.scalar(statement))
        return found or ""

    async def leave_stores(self, file_id: str, now: float) -> None:
        """Remove a deleted file from every vector store that holds it still."""
        await self._database.run(lambda connection: leave_stores(connection, file_id, now))

    async def is_deleted(self, file_id: str) -> bool:
        statement = select(files.c.deleted_at).where(files.c.id == file_id)
        deleted_at = await self._database.run(lambda connection: connection.scalar(statement))
        return deleted_at is not None

    async def purge(self, file_id: str, now: float) -> None:
        """Record that nothing of a deleted file is left but its row."""
        statement = (
            update(files)
            .where(files.c.id == file_id, files.c.deleted_at.is_not(None))
            .values(purged_at=now, filename="", cause=None, notes="[]")
        )
        await self._database.run(lambda connection: connection.execute(statement))

    async def is_purged(self, file_id: str) -> bool:
        statement = select(files.c.purged_at).where(files.c.id == file_id)
        purged_at = await self._database.run(lambda connection: connection.scalar(statement))
        return purged_at is not None

    def _living(self, now: float) -> ColumnElement[bool]:
        return living_at(now) & owned_by(files.c.tenant, self._tenant)

    async def _change(self, file_id: str, condition: ColumnElement[bool], **values: object) -> bool:
        statement = (
            update(files)
            .where(files.c.id == file_id, files.c.deleted_at.is_(None), condition)
            .values(values)
        )
        return await self._database.run(
            lambda connection: connection.execute(statement).rowcount == 1
        )


def new_file_id() -> str:
    return "file-" + "".join(secrets.choice(ID_CHARS) for _ in range(24))


def insert_file(connection: Connection, record: FileRecord, now: float) -> None:
    """Enter a new file and queue its ingest; one in ERROR or PROCESSED is entered as it is."""
    connection.execute(
        insert(files).values(
            id=record.id,
            filename=record.filename,
            purpose=record.purpose,
            num_bytes=record.num_bytes,
            digest=record.digest,
            created_at=record.created_at,
            expires_at=record.expires_at,
            status=record.status,
            cause=record.cause,
            failure=record.failure,
            attempts=0,
            tenant=record.tenant,
        )
    )
    if record.status is FileStatus.UPLOADED:
        insert_job(connection, record.id, JobKind.INGEST, now)


def lock_living(
    connection: Connection, file_ids: Collection[str], now: float, tenant: str | None = None
) -> None:
    """Hold these files in life until the transaction ends. Raises FileMissing."""
    owned = owned_by(files.c.tenant, tenant)
    for file_id in sorted(file_ids):
        held = update(files).where(files.c.id == file_id, living_at(now), owned)
        if connection.execute(held.values(seq=files.c.seq)).rowcount != 1:
            raise FileMissing(file_id)


def living_at(now: float | BindParameter[float]) -> ColumnElement[bool]:
    """Files that are neither deleted nor expired."""
    return and_(
        files.c.deleted_at.is_(None), or_(files.c.expires_at.is_(None), files.c.expires_at > now)
    )


_UNFINISHED = [FileStatus.UPLOADED, FileStatus.IN_PROGRESS]
_BEGIN = (
    update(files)
    .where(
        files.c.id == bindparam("file_id"),
        files.c.status.in_(_UNFINISHED),
        living_at(bindparam("now", type_=Float())),
    )
    .values(status=FileStatus.IN_PROGRESS, stage=Stage.READING, attempts=files.c.attempts + 1)
    .returning(files)
)
_REACH = (
    update(files)
    .where(
        files.c.id == bindparam("file_id"),
        files.c.status == FileStatus.IN_PROGRESS,
        files.c.deleted_at.is_(None),
    )
    .values(stage=bindparam("reached"))
)


def owned_by(column: Column[str], tenant: str | None) -> ColumnElement[bool]:
    """Rows of the tenant; None: of everybody."""
    return true() if tenant is None else column == tenant


def tombstone_file(
    connection: Connection, file_id: str, now: float, tenant: str | None = None
) -> bool:
    """Make the file invisible everywhere and queue the removal of all it left; False if it is
    deleted already."""
    living = (files.c.id == file_id) & files.c.deleted_at.is_(None)
    living &= owned_by(files.c.tenant, tenant)
    changed = connection.execute(update(files).where(living).values(deleted_at=now))
    if changed.rowcount != 1:
        return False
    drop_waiting_ingest(connection, file_id)
    insert_job(connection, file_id, JobKind.DELETE, now)
    leave_stores(connection, file_id, now)
    return True


def leave_stores(connection: Connection, file_id: str, now: float) -> None:
    """Remove the file from every vector store and queue the clearing of its chunks there."""
    placed = (store_files.c.file_id == file_id) & store_files.c.removed_at.is_(None)
    removed = update(store_files).where(placed).values(removed_at=now)
    for store_id in connection.execute(removed.returning(store_files.c.store_id)).scalars().all():
        insert_job(connection, file_id, JobKind.PLACE, now, store_id)


def _place(connection: Connection, file_id: str, living: ColumnElement[bool]) -> int:
    seq = connection.scalar(select(files.c.seq).where(files.c.id == file_id, living))
    if seq is None:
        raise FileMissing(file_id)
    return int(seq)


def record_of(row: Row[*tuple[object, ...]]) -> FileRecord:
    notes: Sequence[str] = msgspec.json.decode(row.notes, type=list[str])
    return FileRecord(
        id=row.id,
        filename=row.filename,
        purpose=row.purpose,
        num_bytes=row.num_bytes,
        digest=row.digest,
        created_at=row.created_at,
        status=FileStatus(row.status),
        cause=row.cause,
        notes=tuple(notes),
        num_chars=row.num_chars,
        num_chunks=row.num_chunks,
        text_digest=row.text_digest,
        expires_at=row.expires_at,
        failure=None if row.failure is None else FailureCode(row.failure),
        stage=None if row.stage is None else Stage(row.stage),
        attempts=row.attempts,
        tenant=row.tenant,
    )
