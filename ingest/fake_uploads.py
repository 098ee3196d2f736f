"""`Uploads` in memory for other packages' tests."""

import hashlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

from ingest.api import FileMissing, FileRecord, FileTooLarge
from ingest.library_uploads import check_parts
from ingest.stores_rows import new_id
from ingest.uploads_api import (
    MAX_PART_BYTES,
    MAX_UPLOAD_BYTES,
    UPLOAD_LIFE_S,
    NewUpload,
    PartsRefused,
    UploadClosed,
    UploadMissing,
    UploadPart,
    UploadRecord,
    UploadStatus,
)
from ingest.uploads_ledger import Parts


@dataclass(slots=True)
class FakeUpload:
    record: UploadRecord
    file_id: str | None = None
    parts: dict[str, tuple[UploadPart, bytes]] = field(default_factory=dict)


class FakeUploads:
    """`enter` makes a file of an upload's bytes; `find` gives it back while it is there."""

    def __init__(
        self,
        enter: Callable[[UploadRecord, bytes], Awaitable[FileRecord]],
        find: Callable[[str], FileRecord],
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._enter = enter
        self._find = find
        self._clock = clock
        self._uploads: dict[str, FakeUpload] = {}

    async def create(self, new: NewUpload) -> UploadRecord:
        if new.num_bytes > MAX_UPLOAD_BYTES:
            raise FileTooLarge(limit_bytes=MAX_UPLOAD_BYTES)
        now = int(self._clock())
        record = UploadRecord(
            id=new_id("upload"),
            filename=new.filename,
            purpose=new.purpose,
            mime_type=new.mime_type,
            num_bytes=new.num_bytes,
            created_at=now,
            expires_at=now + UPLOAD_LIFE_S,
            status=UploadStatus.PENDING,
            file_expires_after_s=new.file_expires_after_s,
        )
        self._uploads[record.id] = FakeUpload(record)
        return record

    async def get(self, upload_id: str) -> UploadRecord:
        upload = self._uploads.get(upload_id)
        if upload is None:
            raise UploadMissing(upload_id)
        record = upload.record
        if record.status is UploadStatus.PENDING and record.expires_at <= self._clock():
            return replace(record, status=UploadStatus.EXPIRED)
        if upload.file_id is None:
            return record
        try:
            return replace(record, file=self._find(upload.file_id))
        except FileMissing:
            return record

    async def add_part(self, upload_id: str, body: AsyncIterator[bytes]) -> UploadPart:
        upload = await self._pending(upload_id)
        raw = bytearray()
        async for piece in body:
            raw += piece
            if len(raw) > MAX_PART_BYTES:
                raise FileTooLarge(limit_bytes=MAX_PART_BYTES)
        part = UploadPart(
            id=new_id("part"),
            upload_id=upload_id,
            num_bytes=len(raw),
            created_at=int(self._clock()),
        )
        upload.parts[part.id] = (part, bytes(raw))
        return part

    async def complete(
        self, upload_id: str, part_ids: Sequence[str], *, md5: str | None
    ) -> UploadRecord:
        upload = await self._pending(upload_id)
        check_parts(Parts(upload.record, [part for part, _ in upload.parts.values()]), part_ids)
        raw = b"".join(upload.parts[one][1] for one in part_ids)
        found = hashlib.md5(raw, usedforsecurity=False).hexdigest()
        if md5 is not None and found != md5.lower():
            raise PartsRefused(f"the md5 of the joined parts is {found}, not {md5}", param="md5")
        upload.file_id = (await self._enter(upload.record, raw)).id
        upload.record = replace(upload.record, status=UploadStatus.COMPLETED)
        return await self.get(upload_id)

    async def cancel(self, upload_id: str) -> UploadRecord:
        upload = await self._pending(upload_id)
        upload.record = replace(upload.record, status=UploadStatus.CANCELLED)
        return upload.record

    async def _pending(self, upload_id: str) -> FakeUpload:
        record = await self.get(upload_id)
        if record.status is not UploadStatus.PENDING:
            raise UploadClosed(upload_id, record.status)
        return self._uploads[upload_id]
