"""What uploads in parts and their parts are, as rows. Knows no bytes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection, Row, delete, insert, or_, select, update

from ingest.api import LOCAL, FileRecord
from ingest.database import Database
from ingest.ledger import insert_file, living_at, owned_by, record_of
from ingest.schema import files, upload_parts, uploads
from ingest.stores_rows import new_id
from ingest.uploads_api import (
    UPLOAD_LIFE_S,
    NewUpload,
    UploadClosed,
    UploadMissing,
    UploadPart,
    UploadRecord,
    UploadStatus,
)

AnyRow = Row[*tuple[object, ...]]


@dataclass(frozen=True, slots=True)
class Parts:
    """A pending upload with the parts that it has so far."""

    upload: UploadRecord
    parts: Sequence[UploadPart]


class UploadsLedger:
    """`clock` tells when an upload has expired. A ledger with a `tenant` knows no other's."""

    def __init__(
        self, database: Database, *, clock: Callable[[], float], tenant: str | None = None
    ) -> None:
        self._database = database
        self._clock = clock
        self._tenant = tenant

    def for_tenant(self, tenant: str) -> "UploadsLedger":
        return UploadsLedger(self._database, clock=self._clock, tenant=tenant)

    async def create(self, new: NewUpload) -> str:
        now = int(self._clock())
        upload_id = new_id("upload")
        values = insert(uploads).values(
            id=upload_id,
            filename=new.filename,
            purpose=new.purpose,
            mime_type=new.mime_type,
            num_bytes=new.num_bytes,
            file_expires_after_s=new.file_expires_after_s,
            created_at=now,
            expires_at=now + UPLOAD_LIFE_S,
            status=UploadStatus.PENDING,
            tenant=self._tenant or LOCAL,
        )
        await self._database.run(lambda connection: connection.execute(values))
        return upload_id

    async def get(self, upload_id: str) -> UploadRecord:
        """Raises UploadMissing."""
        now = self._clock()

        def work(connection: Connection) -> UploadRecord:
            mine = (uploads.c.id == upload_id) & owned_by(uploads.c.tenant, self._tenant)
            row = connection.execute(select(uploads).where(mine)).first()
            if row is None:
                raise UploadMissing(upload_id)
            return _record(row, _file_of(connection, row, now), now)

        return await self._database.run(work)

    async def pending(self, upload_id: str) -> Parts:
        """Raises UploadMissing or UploadClosed."""
        upload = await self.get(upload_id)
        if upload.status is not UploadStatus.PENDING:
            raise UploadClosed(upload_id, upload.status)
        statement = select(upload_parts).where(upload_parts.c.upload_id == upload_id)
        rows = await self._database.run(lambda c: list(c.execute(statement).all()))
        return Parts(upload, [_part(row) for row in rows])

    async def add_part(self, part: UploadPart) -> None:
        """Raises UploadMissing or UploadClosed."""

        def work(connection: Connection) -> bool:
            if not self._hold(connection, part.upload_id):
                return False
            connection.execute(
                insert(upload_parts).values(
                    id=part.id,
                    upload_id=part.upload_id,
                    num_bytes=part.num_bytes,
                    created_at=part.created_at,
                )
            )
            return True

        if not await self._database.run(work):
            await self._refuse(part.upload_id)

    async def complete(self, upload_id: str, record: FileRecord) -> None:
        """Enter the file and close the upload, both or neither. Raises UploadClosed."""

        def work(connection: Connection) -> bool:
            values = {"status": UploadStatus.COMPLETED, "file_id": record.id}
            if not self._hold(connection, upload_id, **values):
                return False
            owned = replace(record, tenant=self._tenant or LOCAL)
            insert_file(connection, owned, owned.created_at)
            return True

        if not await self._database.run(work):
            await self._refuse(upload_id)

    async def cancel(self, upload_id: str) -> None:
        """Raises UploadMissing or UploadClosed."""
        held = await self._database.run(
            lambda c: self._hold(c, upload_id, status=UploadStatus.CANCELLED)
        )
        if not held:
            await self._refuse(upload_id)

    async def spent_parts(self) -> list[str]:
        """Parts of uploads that take no decision any more."""
        statement = (
            select(upload_parts.c.id)
            .join(uploads, uploads.c.id == upload_parts.c.upload_id)
            .where(
                or_(
                    uploads.c.status != UploadStatus.PENDING,
                    uploads.c.expires_at <= self._clock(),
                )
            )
        )
        return await self._database.run(lambda c: list(c.execute(statement).scalars()))

    async def known_parts(self, part_ids: Sequence[str]) -> set[str]:
        statement = select(upload_parts.c.id).where(upload_parts.c.id.in_(part_ids))
        return await self._database.run(lambda c: set(c.execute(statement).scalars()))

    async def forget_part(self, part_id: str) -> None:
        statement = delete(upload_parts).where(upload_parts.c.id == part_id)
        await self._database.run(lambda connection: connection.execute(statement))

    async def trim(self, created_before: float) -> int:
        """Forget old uploads without parts; returns how many."""
        used = select(upload_parts.c.upload_id)
        statement = delete(uploads).where(
            uploads.c.created_at < created_before, uploads.c.id.not_in(used)
        )
        return await self._database.run(lambda connection: connection.execute(statement).rowcount)

    def _hold(self, connection: Connection, upload_id: str, **values: object) -> bool:
        """Change a pending upload, or keep it as it is until the transaction ends."""
        pending = (
            (uploads.c.id == upload_id)
            & (uploads.c.status == UploadStatus.PENDING)
            & (uploads.c.expires_at > self._clock())
            & owned_by(uploads.c.tenant, self._tenant)
        )
        held = update(uploads).where(pending)
        return (
            connection.execute(held.values(values or {"status": UploadStatus.PENDING})).rowcount
            == 1
        )

    async def _refuse(self, upload_id: str) -> None:
        raise UploadClosed(upload_id, (await self.get(upload_id)).status)


def _file_of(connection: Connection, row: AnyRow, now: float) -> FileRecord | None:
    if row.file_id is None:
        return None
    living = select(files).where(files.c.id == row.file_id, living_at(now))
    found = connection.execute(living).first()
    return None if found is None else record_of(found)


def _record(row: AnyRow, file: FileRecord | None, now: float) -> UploadRecord:
    status = UploadStatus(row.status)
    if status is UploadStatus.PENDING and row.expires_at <= now:
        status = UploadStatus.EXPIRED
    return UploadRecord(
        id=row.id,
        filename=row.filename,
        purpose=row.purpose,
        mime_type=row.mime_type,
        num_bytes=row.num_bytes,
        created_at=row.created_at,
        expires_at=row.expires_at,
        status=status,
        file_expires_after_s=row.file_expires_after_s,
        file=file,
    )


def _part(row: AnyRow) -> UploadPart:
    return UploadPart(
        id=row.id, upload_id=row.upload_id, num_bytes=row.num_bytes, created_at=row.created_at
    )
