"""OpenAI's file objects as they go over the wire; knows nothing of how files are kept."""

from typing import Literal, TypedDict

from ingest.api import FilePage, FileRecord

PURPOSES = ("assistants", "user_data")
"""What an upload may be for; the others of OpenAI's purposes are not served."""


class FileObject(TypedDict):
    """OpenAI's object; `status` adds `in_progress`, and the last three fields are Ringway's."""

    id: str
    object: Literal["file"]
    bytes: int
    created_at: int
    expires_at: None
    filename: str
    purpose: str
    status: str
    status_details: str | None
    notes: list[str]
    num_chars: int | None
    num_chunks: int | None


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
        expires_at=None,
        filename=record.filename,
        purpose=record.purpose,
        status=record.status.value,
        status_details=record.cause,
        notes=list(record.notes),
        num_chars=record.num_chars,
        num_chunks=record.num_chunks,
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
