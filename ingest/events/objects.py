"""What is recorded of every S3 object: its newest handled change, and the file it became.

Knows tables and transactions; what a change means is decided in `ingest.events.verdict`.
"""

from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import Connection, Row, Select, exists, insert, literal, select, update
from sqlalchemy.exc import IntegrityError

from ingest.api import FileRecord, FileStatus, TransientError
from ingest.database import Database
from ingest.events.schema import objects
from ingest.events.verdict import Known, Verdict, Wanted, decide
from ingest.ledger import insert_file, tombstone_file
from ingest.schema import files


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A change of one key, ready to be entered. `record` is its new file, None: no file."""

    bucket: str
    key: str
    wanted: Wanted
    record: FileRecord | None = None
    version_id: str | None = None
    etag: str | None = None

    @property
    def lacks_record(self) -> bool:
        return self.record is None and self.wanted.identity is not None


@dataclass(frozen=True, slots=True)
class Settled:
    verdict: Verdict
    file_id: str | None
    """The key's file as recorded after the change; it may be deleted or failed since."""


class ObjectTable:
    """Rows are never removed: that of a deleted object keeps a late event from reviving it."""

    def __init__(self, database: Database, *, clock: Callable[[], float]) -> None:
        self._database = database
        self._clock = clock

    async def known(self, bucket: str, key: str) -> Known:
        statement = _row_of(bucket, key)
        row = await self._database.run(lambda connection: connection.execute(statement).first())
        return _known(row)

    async def settle(self, proposal: Proposal) -> Settled:
        """Enter the change if it still matters: files, jobs and row together, or nothing.

        Of concurrent changes of one key the newest wins, whatever their order. REPLACE by content
        that came without its `record` enters nothing: copy the bytes and propose again.
        """

        def work(connection: Connection) -> Settled:
            _ensure_row(connection, proposal)
            statement = _row_of(proposal.bucket, proposal.key).with_for_update(of=objects)
            known = _known(connection.execute(statement).first())
            verdict = decide(known, proposal.wanted)
            match verdict:
                case Verdict.STALE | Verdict.DUPLICATE:
                    return Settled(verdict, known.file_id)
                case Verdict.REPLACE if proposal.lacks_record:
                    return Settled(verdict, known.file_id)
                case Verdict.SAME:
                    file_id = known.file_id
                case Verdict.REPLACE:
                    file_id = self._replace(connection, known.file_id, proposal.record)
            _enter(connection, proposal, file_id)
            return Settled(verdict, file_id)

        try:
            return await self._database.run(work)
        except IntegrityError as error:
            raise TransientError("another event of this object was entered just now") from error

    def _replace(
        self, connection: Connection, old_id: str | None, record: FileRecord | None
    ) -> str | None:
        if old_id is not None:
            tombstone_file(connection, old_id, self._clock())
        if record is None:
            return None
        insert_file(connection, record, self._clock())
        return record.id


def _ensure_row(connection: Connection, proposal: Proposal) -> None:
    """Begins the transaction with a write: SQLite locks here, other databases at the select."""
    missing = ~exists().where(objects.c.bucket == proposal.bucket, objects.c.key == proposal.key)
    row = select(literal(proposal.bucket), literal(proposal.key)).where(missing)
    connection.execute(insert(objects).from_select(["bucket", "key"], row))


def _row_of(bucket: str, key: str) -> Select[*tuple[object, ...]]:
    return (
        select(objects, files.c.digest, files.c.status, files.c.deleted_at)
        .outerjoin(files, files.c.id == objects.c.file_id)
        .where(objects.c.bucket == bucket, objects.c.key == key)
    )


def _known(row: Row[*tuple[object, ...]] | None) -> Known:
    if row is None:
        return Known()
    is_alive = row.status not in (None, FileStatus.ERROR) and row.deleted_at is None
    return Known(
        sequencer=row.sequencer,
        identity=row.identity,
        pipeline_version=row.pipeline_version,
        file_id=row.file_id,
        digest=row.digest,
        is_alive=is_alive,
    )


def _enter(connection: Connection, proposal: Proposal, file_id: str | None) -> None:
    wanted = proposal.wanted
    connection.execute(
        update(objects)
        .where(objects.c.bucket == proposal.bucket, objects.c.key == proposal.key)
        .values(
            sequencer=wanted.sequencer,
            identity=wanted.identity,
            pipeline_version=wanted.pipeline_version,
            version_id=proposal.version_id,
            etag=proposal.etag,
            file_id=file_id,
        )
    )
