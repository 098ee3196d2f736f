"""OpenAI's upload objects and bodies as they go over the wire; knows nothing of bytes."""

from typing import Annotated, Literal, TypedDict

from pydantic import Field

from gateway.openai.files import MAX_LIFE_S, MIN_LIFE_S, FileObject, file_object
from gateway.openai.wire import Wire
from ingest.uploads_api import MAX_UPLOAD_BYTES, NewUpload, UploadPart, UploadRecord

MAX_PARTS = 10_000


class FileExpiry(Wire):
    anchor: Literal["created_at"]
    seconds: int = Field(ge=MIN_LIFE_S, le=MAX_LIFE_S)


class CreateUpload(Wire):
    bytes: int = Field(ge=1, le=MAX_UPLOAD_BYTES)
    filename: str = Field(min_length=1, max_length=1024)
    mime_type: str = Field(min_length=1, max_length=256)
    purpose: Literal["assistants", "batch", "user_data"]
    expires_after: FileExpiry | None = None

    def value(self) -> NewUpload:
        return NewUpload(
            filename=self.filename,
            purpose=self.purpose,
            mime_type=self.mime_type,
            num_bytes=self.bytes,
            file_expires_after_s=self.expires_after.seconds if self.expires_after else None,
        )


class CompleteUpload(Wire):
    part_ids: list[Annotated[str, Field(max_length=64)]] = Field(min_length=1, max_length=MAX_PARTS)
    md5: Annotated[str, Field(pattern=r"^[0-9a-fA-F]{32}$")] | None = None


class UploadObject(TypedDict):
    id: str
    object: Literal["upload"]
    bytes: int
    created_at: int
    expires_at: int
    filename: str
    purpose: str
    mime_type: str
    status: str
    file: FileObject | None


class PartObject(TypedDict):
    id: str
    object: Literal["upload.part"]
    created_at: int
    upload_id: str


def upload_object(record: UploadRecord) -> UploadObject:
    return UploadObject(
        id=record.id,
        object="upload",
        bytes=record.num_bytes,
        created_at=record.created_at,
        expires_at=record.expires_at,
        filename=record.filename,
        purpose=record.purpose,
        mime_type=record.mime_type,
        status=record.status.value,
        file=None if record.file is None else file_object(record.file),
    )


def part_object(part: UploadPart) -> PartObject:
    return PartObject(
        id=part.id, object="upload.part", created_at=part.created_at, upload_id=part.upload_id
    )
