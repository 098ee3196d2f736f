"""The body of POST /v1/batches and OpenAI's batch object as they go over the wire."""

from typing import Literal, TypedDict

from gateway.batches.api import Batch, BatchStatus
from gateway.openai.uploads import FileExpiry
from gateway.openai.vector_stores_bodies import FileId
from gateway.openai.wire import Metadata, Wire
from ingest.stores_api import Page

WINDOW = "24h"


class CreateBatchBody(Wire):
    input_file_id: FileId
    endpoint: Literal["/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses"]
    completion_window: Literal["24h"]
    metadata: Metadata | None = None
    output_expires_after: FileExpiry | None = None


class BatchErrorObject(TypedDict):
    code: str
    line: int | None
    message: str
    param: str | None


class BatchErrors(TypedDict):
    object: Literal["list"]
    data: list[BatchErrorObject]


class RequestCounts(TypedDict):
    total: int
    completed: int
    failed: int


class BatchObject(TypedDict):
    id: str
    object: Literal["batch"]
    endpoint: str
    errors: BatchErrors | None
    input_file_id: str
    completion_window: str
    status: str
    output_file_id: str | None
    error_file_id: str | None
    created_at: int
    in_progress_at: int | None
    expires_at: int
    finalizing_at: int | None
    completed_at: int | None
    failed_at: int | None
    expired_at: int | None
    cancelling_at: int | None
    cancelled_at: int | None
    request_counts: RequestCounts
    metadata: dict[str, str]


class BatchList(TypedDict):
    object: Literal["list"]
    data: list[BatchObject]
    first_id: str | None
    last_id: str | None
    has_more: bool


def batch_object(batch: Batch) -> BatchObject:
    at = batch.times.get
    return BatchObject(
        id=batch.id,
        object="batch",
        endpoint=batch.endpoint,
        errors=_errors(batch),
        input_file_id=batch.input_file_id,
        completion_window=WINDOW,
        status=batch.status.value,
        output_file_id=batch.output_file_id,
        error_file_id=batch.error_file_id,
        created_at=batch.created_at,
        in_progress_at=at(BatchStatus.IN_PROGRESS),
        expires_at=batch.expires_at,
        finalizing_at=at(BatchStatus.FINALIZING),
        completed_at=at(BatchStatus.COMPLETED),
        failed_at=at(BatchStatus.FAILED),
        expired_at=at(BatchStatus.EXPIRED),
        cancelling_at=at(BatchStatus.CANCELLING),
        cancelled_at=at(BatchStatus.CANCELLED),
        request_counts=RequestCounts(
            total=batch.counts.total,
            completed=batch.counts.completed,
            failed=batch.counts.failed,
        ),
        metadata=dict(batch.metadata),
    )


def batch_list(page: Page[Batch]) -> BatchList:
    data = [batch_object(one) for one in page.items]
    return BatchList(
        object="list",
        data=data,
        first_id=data[0]["id"] if data else None,
        last_id=data[-1]["id"] if data else None,
        has_more=page.has_more,
    )


def _errors(batch: Batch) -> BatchErrors | None:
    if not batch.errors:
        return None
    data = [
        BatchErrorObject(code=one.code, line=one.line, message=one.message, param=one.param)
        for one in batch.errors
    ]
    return BatchErrors(object="list", data=data)
