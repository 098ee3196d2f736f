"""OpenAI's file objects as they go over the wire; knows nothing of how files are kept."""

from typing import Literal, TypedDict

from gateway.api import InvalidRequest
from ingest.api import FilePage, FileRecord

PURPOSES = ("assistants", "batch", "user_data")
"""What an upload may be for; the others of OpenAI's purposes are not served."""


MIN_LIFE_S = 3_600
MAX_LIFE_S = 2_592_000

ANCHOR = "expires_after[anchor]"
SECONDS = "expires_after[seconds]"
EXPIRY_FIELDS = (ANCHOR, SECONDS)


class FileObject(TypedDict):
    """OpenAI's object; `status` adds `in_progress`. From `notes` on the fields are Ringway's."""

    id: str
    object: Literal["file"]
    bytes: int
    created_at: int
    expires_at: int | None
    filename: str
    purpose: str
    status: str
    status_details: str | None
    notes: list[str]
    num_chars: int | None
    num_chunks: int | None
    stage: str | None
    attempts: int


class FileList(TypedDict):
    object: Literal["list"]
    data: list[FileObject]
    first_id: str | None
    last_id: str | None
    has_more: bool


class FileDeleted(TypedDict):
    id: str
    object: Literal["file"]
    deleted: bool


def file_object(record: FileRecord) -> FileObject:
    return FileObject(
        id=record.id,
        object="file",
        bytes=record.num_bytes,
        created_at=record.created_at,
        expires_at=record.expires_at,
        filename=record.filename,
        purpose=record.purpose,
        status=record.status.value,
        status_details=record.cause,
        notes=list(record.notes),
        num_chars=record.num_chars,
        num_chunks=record.num_chunks,
        stage=None if record.stage is None else record.stage.value,
        attempts=record.attempts,
    )


def file_list(page: FilePage) -> FileList:
    data = [file_object(record) for record in page.files]
    return FileList(
        object="list",
        data=data,
        first_id=data[0]["id"] if data else None,
        last_id=data[-1]["id"] if data else None,
        has_more=page.has_more,
    )


def seconds_of(anchor: str | None, seconds: str | None) -> int | None:
    """How long a file shall live, from the two fields of a form. Raises InvalidRequest."""
    if anchor is None and seconds is None:
        return None
    if anchor != "created_at":
        raise InvalidRequest(
            f"Invalid value for '{ANCHOR}': only 'created_at' is.",
            param=ANCHOR,
            code="invalid_value",
        )
    digits = seconds or ""
    if not (digits.isascii() and digits.isdigit() and MIN_LIFE_S <= int(digits[:9]) <= MAX_LIFE_S):
        raise InvalidRequest(
            f"Invalid value for '{SECONDS}': a whole number from {MIN_LIFE_S} to {MAX_LIFE_S}.",
            param=SECONDS,
            code="invalid_value",
        )
    return int(digits)
