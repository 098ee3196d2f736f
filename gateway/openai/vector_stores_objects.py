"""OpenAI's vector store objects as they go over the wire; knows nothing of how stores are kept."""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypedDict, TypeVar

from ingest.api import FailureCode, StoredText
from ingest.stores_api import (
    FileCounts,
    Page,
    StoreBatch,
    StoreFile,
    StoreFound,
    StoreHit,
    VectorStoreRecord,
)
from retrieval.api import Attribute

Item = TypeVar("Item")


class CountsObject(TypedDict):
    in_progress: int
    completed: int
    failed: int
    cancelled: int
    total: int


class ExpiryObject(TypedDict):
    anchor: Literal["last_active_at"]
    days: int


class StoreObject(TypedDict):
    id: str
    object: Literal["vector_store"]
    created_at: int
    name: str
    description: str | None
    usage_bytes: int
    file_counts: CountsObject
    status: str
    expires_after: ExpiryObject | None
    expires_at: int | None
    last_active_at: int
    metadata: Mapping[str, str]


class SizesObject(TypedDict):
    max_chunk_size_tokens: int
    chunk_overlap_tokens: int


class ChunkingObject(TypedDict):
    type: Literal["static"]
    static: SizesObject


class LastError(TypedDict):
    code: str
    message: str


class StoreFileObject(TypedDict):
    """The last three fields are Ringway's: what was indexed, and how far the work has come."""

    id: str
    object: Literal["vector_store.file"]
    usage_bytes: int
    created_at: int
    vector_store_id: str
    status: str
    last_error: LastError | None
    chunking_strategy: ChunkingObject
    attributes: Mapping[str, Attribute]
    num_chunks: int
    stage: str | None
    attempts: int


class BatchObject(TypedDict):
    id: str
    object: Literal["vector_store.files_batch"]
    created_at: int
    vector_store_id: str
    status: str
    file_counts: CountsObject


class Deleted(TypedDict):
    id: str
    object: str
    deleted: bool


class ListObject(TypedDict):
    object: Literal["list"]
    data: Sequence[object]
    first_id: str | None
    last_id: str | None
    has_more: bool


class TextObject(TypedDict):
    type: Literal["text"]
    text: str


class SpanObject(TypedDict):
    """Characters [start, stop) of the file's stored text."""

    start: int
    stop: int


class HitObject(TypedDict):
    file_id: str
    filename: str
    score: float
    attributes: Mapping[str, Attribute]
    content: list[TextObject]
    ringway: SpanObject


class HitsObject(TypedDict):
    object: Literal["vector_store.search_results.page"]
    search_query: Sequence[str]
    data: list[HitObject]
    has_more: bool
    next_page: None


class ContentObject(TypedDict):
    object: Literal["vector_store.file_content.page"]
    file_id: str
    filename: str
    attributes: Mapping[str, Attribute]
    data: list[TextObject]
    has_more: bool
    next_page: None


def store_object(record: VectorStoreRecord) -> StoreObject:
    days = record.expires_after_days
    return StoreObject(
        id=record.id,
        object="vector_store",
        created_at=record.created_at,
        name=record.name,
        description=record.description,
        usage_bytes=record.usage_bytes,
        file_counts=counts_object(record.counts),
        status=record.status.value,
        expires_after=None if days is None else ExpiryObject(anchor="last_active_at", days=days),
        expires_at=record.expires_at,
        last_active_at=record.last_active_at,
        metadata=record.metadata,
    )


def store_file_object(file: StoreFile) -> StoreFileObject:
    error = None
    if file.cause is not None:
        error = LastError(code=(file.failure or FailureCode.SERVER_ERROR).value, message=file.cause)
    return StoreFileObject(
        id=file.file_id,
        object="vector_store.file",
        usage_bytes=file.usage_bytes,
        created_at=file.created_at,
        vector_store_id=file.store_id,
        status=file.status.value,
        last_error=error,
        chunking_strategy=ChunkingObject(
            type="static",
            static=SizesObject(
                max_chunk_size_tokens=file.chunking.max_tokens,
                chunk_overlap_tokens=file.chunking.overlap_tokens,
            ),
        ),
        attributes=file.attributes,
        num_chunks=file.num_chunks,
        stage=None if file.stage is None else file.stage.value,
        attempts=file.attempts,
    )


def batch_object(batch: StoreBatch) -> BatchObject:
    return BatchObject(
        id=batch.id,
        object="vector_store.files_batch",
        created_at=batch.created_at,
        vector_store_id=batch.store_id,
        status=batch.status.value,
        file_counts=counts_object(batch.counts),
    )


def list_object(
    page: Page[Item], show: Callable[[Item], object], id_of: Callable[[Item], str]
) -> ListObject:
    return ListObject(
        object="list",
        data=[show(one) for one in page.items],
        first_id=id_of(page.items[0]) if page.items else None,
        last_id=id_of(page.items[-1]) if page.items else None,
        has_more=page.has_more,
    )


def hits_object(queries: Sequence[str], found: StoreFound) -> HitsObject:
    return HitsObject(
        object="vector_store.search_results.page",
        search_query=queries,
        data=[_hit_object(hit) for hit in found.hits],
        has_more=False,
        next_page=None,
    )


def content_object(stored: StoredText, attributes: Mapping[str, Attribute]) -> ContentObject:
    return ContentObject(
        object="vector_store.file_content.page",
        file_id=stored.file_id,
        filename=stored.filename,
        attributes=attributes,
        data=[TextObject(type="text", text=stored.text)],
        has_more=False,
        next_page=None,
    )


def counts_object(counts: FileCounts) -> CountsObject:
    return CountsObject(
        in_progress=counts.in_progress,
        completed=counts.completed,
        failed=counts.failed,
        cancelled=counts.cancelled,
        total=counts.total,
    )


def _hit_object(hit: StoreHit) -> HitObject:
    passage = hit.passage
    return HitObject(
        file_id=passage.document_id,
        filename=hit.filename,
        score=round(passage.score, 6),
        attributes=hit.attributes,
        content=[TextObject(type="text", text=passage.text)],
        ringway=SpanObject(start=passage.start, stop=passage.stop),
    )
