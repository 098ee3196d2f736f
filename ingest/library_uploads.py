"""The `Uploads` over their ledger and the blobs: parts in, one file out, never whole in memory."""

import hashlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress

from ingest.api import FileRecord, FileTooLarge, IngestError, TransientError, first_status
from ingest.blobs import BlobMissing, BlobStore
from ingest.ledger import new_file_id
from ingest.stores_rows import new_id
from ingest.texts import upload_key
from ingest.uploads_api import (
    MAX_PART_BYTES,
    MAX_UPLOAD_BYTES,
    NewUpload,
    PartsRefused,
    UploadPart,
    UploadRecord,
)
from ingest.uploads_ledger import Parts, UploadsLedger


class LocalUploads:
    def __init__(
        self,
        ledger: UploadsLedger,
        blobs: BlobStore,
        nudge: Callable[[], Awaitable[None]],
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._ledger = ledger
        self._blobs = blobs
        self._nudge = nudge
        self._clock = clock

    async def create(self, new: NewUpload) -> UploadRecord:
        if new.num_bytes > MAX_UPLOAD_BYTES:
            raise FileTooLarge(limit_bytes=MAX_UPLOAD_BYTES)
        return await self.get(await self._ledger.create(new))

    async def get(self, upload_id: str) -> UploadRecord:
        return await self._ledger.get(upload_id)

    async def add_part(self, upload_id: str, body: AsyncIterator[bytes]) -> UploadPart:
        await self._ledger.pending(upload_id)
        part_id = new_id("part")
        key = part_key(part_id)
        stored = await self._blobs.put_stream(key, body, limit_bytes=MAX_PART_BYTES)
        part = UploadPart(
            id=part_id,
            upload_id=upload_id,
            num_bytes=stored.num_bytes,
            created_at=int(self._clock()),
        )
        try:
            await self._ledger.add_part(part)
        except IngestError:
            await self._drop(key)
            raise
        return part

    async def complete(
        self, upload_id: str, part_ids: Sequence[str], *, md5: str | None
    ) -> UploadRecord:
        pending = await self._ledger.pending(upload_id)
        check_parts(pending, part_ids)
        record = await self._joined(pending.upload, part_ids, md5)
        try:
            await self._ledger.complete(upload_id, record)
        except IngestError:
            await self._drop(upload_key(record.id))
            raise
        await self._nudge()
        await self._drop_parts(pending)
        return await self.get(upload_id)

    async def cancel(self, upload_id: str) -> UploadRecord:
        pending = await self._ledger.pending(upload_id)
        await self._ledger.cancel(upload_id)
        await self._drop_parts(pending)
        return await self.get(upload_id)

    async def _joined(
        self, upload: UploadRecord, part_ids: Sequence[str], md5: str | None
    ) -> FileRecord:
        """The parts as one blob, and the file that it will be."""
        file_id = new_file_id()
        checksum = hashlib.md5(usedforsecurity=False)
        body = self._bytes_of(upload, part_ids, checksum.update)
        stored = await self._blobs.put_stream(
            upload_key(file_id), body, limit_bytes=upload.num_bytes
        )
        found = checksum.hexdigest()
        if md5 is not None and found != md5.lower():
            await self._drop(upload_key(file_id))
            raise PartsRefused(
                f"the md5 of the joined parts is {found}, not {md5}; upload them again", param="md5"
            )
        now = int(self._clock())
        lasts_s = upload.file_expires_after_s
        return FileRecord(
            id=file_id,
            filename=upload.filename,
            purpose=upload.purpose,
            num_bytes=stored.num_bytes,
            digest=stored.digest,
            created_at=now,
            expires_at=None if lasts_s is None else now + lasts_s,
            status=first_status(upload.purpose),
        )

    async def _bytes_of(
        self, upload: UploadRecord, part_ids: Sequence[str], see: Callable[[bytes], None]
    ) -> AsyncIterator[bytes]:
        for part_id in part_ids:
            try:
                async for piece in self._blobs.get(part_key(part_id)):
                    see(piece)
                    yield piece
            except BlobMissing as error:
                raise TransientError(f"the part {part_id} of {upload.id} is gone") from error

    async def _drop_parts(self, pending: Parts) -> None:
        """What does not go now goes with the next sweep."""
        with suppress(TransientError):
            for part in pending.parts:
                await self._blobs.delete(part_key(part.id))
                await self._ledger.forget_part(part.id)

    async def _drop(self, key: str) -> None:
        with suppress(TransientError):
            await self._blobs.delete(key)


def check_parts(pending: Parts, part_ids: Sequence[str]) -> None:
    """Raises PartsRefused unless these parts make the file that was announced."""
    sizes = {part.id: part.num_bytes for part in pending.parts}
    for part_id in part_ids:
        if part_id not in sizes:
            raise PartsRefused(
                f"the upload {pending.upload.id} has no part {part_id}", param="part_ids"
            )
    if len(set(part_ids)) != len(part_ids):
        raise PartsRefused("a part is named twice; name each one once", param="part_ids")
    num_bytes, announced = sum(sizes[one] for one in part_ids), pending.upload.num_bytes
    if num_bytes != announced:
        raise PartsRefused(
            f"the parts hold {num_bytes} bytes together; {announced} were announced",
            param="part_ids",
        )


def part_key(part_id: str) -> str:
    return f"parts/{part_id}"
