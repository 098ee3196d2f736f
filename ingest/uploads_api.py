"""Uploads in parts as the rest of Ringway may know them: values, the `Uploads` and errors."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from ingest.api import FileRecord, IngestError

MAX_UPLOAD_BYTES = 8 << 30
MAX_PART_BYTES = 64 << 20
UPLOAD_LIFE_S = 3600


class UploadStatus(StrEnum):
    PENDING = "pending"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewUpload:
    """`num_bytes` is what the parts will add up to."""

    filename: str
    purpose: str
    mime_type: str
    num_bytes: int
    file_expires_after_s: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadRecord:
    """Times are Unix seconds; `file` is set exactly when COMPLETED, while the file is there."""

    id: str
    filename: str
    purpose: str
    mime_type: str
    num_bytes: int
    created_at: int
    expires_at: int
    status: UploadStatus
    file_expires_after_s: int | None = None
    file: FileRecord | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadPart:
    id: str
    upload_id: str
    num_bytes: int
    created_at: int


class Uploads(Protocol):
    """Safe for concurrent use; parts may come in any order and at the same time."""

    async def create(self, new: NewUpload) -> UploadRecord:
        """Raises FileTooLarge."""
        ...

    async def get(self, upload_id: str) -> UploadRecord:
        """Raises UploadMissing."""
        ...

    async def add_part(self, upload_id: str, body: AsyncIterator[bytes]) -> UploadPart:
        """Raises UploadMissing, UploadClosed, or FileTooLarge, having stored nothing."""
        ...

    async def complete(
        self, upload_id: str, part_ids: Sequence[str], *, md5: str | None
    ) -> UploadRecord:
        """Join the parts in this order into one file and queue its ingest.

        Raises UploadMissing, UploadClosed or PartsRefused; the upload stays as it was.
        """
        ...

    async def cancel(self, upload_id: str) -> UploadRecord:
        """Raises UploadMissing or UploadClosed."""
        ...


class UploadMissing(IngestError):
    def __init__(self, upload_id: str) -> None:
        super().__init__(f"no such upload: {upload_id}")
        self.upload_id = upload_id


class UploadClosed(IngestError):
    """The upload takes no parts and no decisions any more."""

    def __init__(self, upload_id: str, status: UploadStatus) -> None:
        super().__init__(f"the upload {upload_id} is {status}, not pending; create a new one")
        self.upload_id = upload_id
        self.status = status


class PartsRefused(IngestError):
    """The parts named do not make the file that was announced; the message says why not."""

    def __init__(self, message: str, *, param: str) -> None:
        super().__init__(message)
        self.param = param
