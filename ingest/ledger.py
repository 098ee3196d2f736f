"""What became of every file. Knows states and their order, not how a file is read or searched."""

import secrets
import string
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import msgspec
from sqlalchemy import ColumnElement, Connection, Row, Select, insert, select, update

from ingest.api import FileMissing, FilePage, FileRecord, FileStatus
from ingest.database import Database
from ingest.jobs import JobKind, drop_waiting_ingest, insert_job
from ingest.schema import files

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
    notes: tuple[str, ...] = ()


class Ledger:
    """Every change is one guarded UPDATE, so work done twice or too late changes nothing."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, record: FileRecord) -> None:
        """Enter a new file and queue its ingest, both or neither."""

        def work(connection: Connection) -> None:
            connection.execute(
                insert(files).values(
                    id=record.id,
                    filename=record.filename,
                    purpose=record.purpose,
                    num_bytes=record.num_bytes,
                    digest=record.digest,
                    created_at=record.created_at,
                    status=record.status,
                )
            )
            insert_job(connection, record.id, JobKind.INGEST, record.created_at)

        await self._database.run(work)

    async def get(self, file_id: str) -> Entry:
        """Raises FileMissing, also for a deleted file."""
        statement = select(files).where(files.c.id == file_id, files.c.deleted_at.is_(None))
        row = await self._database.run(lambda connection: connection.execute(statement).first())
        if row is None:
            raise FileMissing(file_id)
        return Entry(_record(row), row.generation)

    async def page(
        self, *, after: str | None, limit: int, ascending: bool, purpose: str | None
    ) -> FilePage:
        """Raises FileMissing when `after` is unknown."""

        def work(connection: Connection) -> FilePage:
            statement = select(files).where(files.c.deleted_at.is_(None))
            if purpose is not None:
                statement = statement.where(files.c.purpose == purpose)
            statement = _from_cursor(connection, statement, after, ascending)
            rows = connection.execute(statement.limit(limit + 1)).all()
            shown = [_record(row) for row in rows[:limit]]
            return FilePage(files=shown, has_more=len(rows) > limit)

        return await self._database.run(work)

    async def searchable(self, file_ids: Collection[str]) -> set[str]:
        """Those of `file_ids` that are processed and not deleted."""
        wanted = list(dict.fromkeys(file_ids))

        def work(connection: Connection) -> set[str]:
            found: set[str] = set()
            for first in range(0, len(wanted), IDS_PER_QUERY):
                statement = select(files.c.id).where(
                    files.c.id.in_(wanted[first : first + IDS_PER_QUERY]),
                    files.c.status == FileStatus.PROCESSED,
                    files.c.deleted_at.is_(None),
                )
                found.update(connection.execute(statement).scalars())
            return found

        return await self._database.run(work)

    async def begin(self, file_id: str) -> bool:
        """UPLOADED or IN_PROGRESS becomes IN_PROGRESS; False for all else."""
        return await self._change(
            file_id,
            files.c.status.in_([FileStatus.UPLOADED, FileStatus.IN_PROGRESS]),
            status=FileStatus.IN_PROGRESS,
        )

    async def finish(self, file_id: str, outcome: Outcome) -> bool:
        """IN_PROGRESS (or PROCESSED, of an older generation) becomes PROCESSED."""
        return await self._change(
            file_id,
            files.c.status.in_([FileStatus.IN_PROGRESS, FileStatus.PROCESSED]),
            status=FileStatus.PROCESSED,
            cause=None,
            generation=outcome.generation,
            num_chars=outcome.num_chars,
            num_chunks=outcome.num_chunks,
            notes=msgspec.json.encode(outcome.notes).decode(),
        )

    async def fail(self, file_id: str, cause: str) -> bool:
        """A file that is not PROCESSED becomes ERROR."""
        return await self._change(
            file_id,
            files.c.status.in_([FileStatus.UPLOADED, FileStatus.IN_PROGRESS]),
            status=FileStatus.ERROR,
            cause=cause,
        )

    async def tombstone(self, file_id: str, now: float) -> None:
        """Make the file invisible and queue the removal of all it left. Raises FileMissing."""

        def work(connection: Connection) -> bool:
            living = (files.c.id == file_id) & files.c.deleted_at.is_(None)
            changed = connection.execute(update(files).where(living).values(deleted_at=now))
            if changed.rowcount != 1:
                return False
            drop_waiting_ingest(connection, file_id)
            insert_job(connection, file_id, JobKind.DELETE, now)
            return True

        if not await self._database.run(work):
            raise FileMissing(file_id)

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


def _from_cursor(
    connection: Connection,
    statement: Select[*tuple[object, ...]],
    after: str | None,
    ascending: bool,
) -> Select[*tuple[object, ...]]:
    order = files.c.seq.asc() if ascending else files.c.seq.desc()
    if after is not None:
        cursor = select(files.c.seq).where(files.c.id == after, files.c.deleted_at.is_(None))
        seq = connection.scalar(cursor)
        if seq is None:
            raise FileMissing(after)
        statement = statement.where(files.c.seq > seq if ascending else files.c.seq < seq)
    return statement.order_by(order)


def _record(row: Row[*tuple[object, ...]]) -> FileRecord:
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
    )
