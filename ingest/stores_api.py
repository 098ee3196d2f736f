"""Vector stores as the rest of Ringway may know them: values, the `VectorStores` and errors.

A vector store is a collection of the index: files in it have chunks of their own. Knows nothing
of OpenAI's wire format.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, Protocol, TypeVar

from ingest.api import FailureCode, IngestError, Stage
from retrieval.api import Attribute, Filter, Passage

MIN_CHUNK_TOKENS = 100
MAX_CHUNK_TOKENS = 4096
MAX_STORE_FILES = 500
"""Files that a store can be created with."""
MAX_BATCH_FILES = 2000
MAX_RESULTS = 50

Item = TypeVar("Item")


class StoreStatus(StrEnum):
    EXPIRED = "expired"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"


class StoreFileStatus(StrEnum):
    """Of a file in a store, and of a batch. A re-indexed file stays searchable meanwhile."""

    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunking:
    """The user's chunks, in tokens of the embedder. Each is read whole; smaller windows of it
    are searched."""

    max_tokens: int = 800
    overlap_tokens: int = 400

    def __post_init__(self) -> None:
        if not MIN_CHUNK_TOKENS <= self.max_tokens <= MAX_CHUNK_TOKENS:
            raise ValueError(f"max_tokens must be {MIN_CHUNK_TOKENS} to {MAX_CHUNK_TOKENS}")
        if not 0 <= self.overlap_tokens <= self.max_tokens // 2:
            raise ValueError("overlap_tokens must be at most half of max_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileCounts:
    in_progress: int = 0
    completed: int = 0
    cancelled: int = 0
    failed: int = 0

    @property
    def total(self) -> int:
        return self.in_progress + self.completed + self.cancelled + self.failed


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorStoreRecord:
    """Times are Unix seconds. An EXPIRED store holds no file any more."""

    id: str
    name: str
    description: str | None
    metadata: Mapping[str, str]
    created_at: int
    last_active_at: int
    expires_after_days: int | None
    expires_at: int | None
    status: StoreStatus
    counts: FileCounts
    usage_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFile:
    """A file in a store. `cause` and `failure` are set exactly when it FAILED."""

    store_id: str
    file_id: str
    created_at: int
    status: StoreFileStatus
    attributes: Mapping[str, Attribute]
    chunking: Chunking
    stage: Stage | None = None
    attempts: int = 0
    cause: str | None = None
    failure: FailureCode | None = None
    num_chunks: int = 0
    usage_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreBatch:
    id: str
    store_id: str
    created_at: int
    status: StoreFileStatus
    counts: FileCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class NewStoreFile:
    file_id: str
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    chunking: Chunking = field(default_factory=Chunking)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewVectorStore:
    name: str = ""
    description: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    expires_after_days: int | None = None
    files: Sequence[NewStoreFile] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreChanges:
    """None leaves a thing as it is; an `expires_after_days` of 0 means never."""

    name: str | None = None
    metadata: Mapping[str, str] | None = None
    expires_after_days: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRequest:
    """A run of items by creation. `before` alone asks for those right before it."""

    after: str | None = None
    before: str | None = None
    limit: int = 20
    ascending: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[Item]):
    items: Sequence[Item]
    has_more: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSearch:
    """Several queries are searched each for itself; a passage counts with its best score."""

    queries: Sequence[str]
    filter: Filter | None = None
    top_k: int = 10
    score_threshold: float = 0.0
    deadline_s: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreHit:
    """A passage, and what the store says of its file at this moment."""

    passage: Passage
    filename: str
    attributes: Mapping[str, Attribute]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFound:
    """Hits best first, none overlapping; `evidence` is the best of the queries'."""

    hits: Sequence[StoreHit]
    evidence: float


class VectorStores(Protocol):
    """Safe for concurrent use. All methods but `create` and `list` raise VectorStoreMissing; those
    that read or change a store's files raise VectorStoreExpired too.

    Adding, changing and removing files are jobs for the worker: a removed file is invisible at
    once, an added one when it is COMPLETED.
    """

    async def create(self, new: NewVectorStore) -> VectorStoreRecord:
        """Raises FileMissing, having created nothing."""
        ...

    async def get(self, store_id: str) -> VectorStoreRecord: ...

    async def list(self, request: PageRequest) -> Page[VectorStoreRecord]: ...

    async def update(self, store_id: str, changes: StoreChanges) -> VectorStoreRecord: ...

    async def delete(self, store_id: str) -> None:
        """The files themselves stay in the library."""
        ...

    async def add_file(self, store_id: str, new: NewStoreFile) -> StoreFile:
        """A file that is there already gets the new attributes and chunking.

        Raises FileMissing.
        """
        ...

    async def add_batch(self, store_id: str, files: Sequence[NewStoreFile]) -> StoreBatch:
        """All files or none. Raises FileMissing."""
        ...

    async def get_batch(self, store_id: str, batch_id: str) -> StoreBatch:
        """Raises BatchMissing."""
        ...

    async def cancel_batch(self, store_id: str, batch_id: str) -> StoreBatch:
        """Files that are not completed yet become CANCELLED. Raises BatchMissing."""
        ...

    async def get_file(self, store_id: str, file_id: str) -> StoreFile:
        """Raises FileMissing."""
        ...

    async def list_files(
        self,
        store_id: str,
        request: PageRequest,
        *,
        status: StoreFileStatus | None = None,
        batch_id: str | None = None,
    ) -> Page[StoreFile]:
        """Raises FileMissing for an unknown cursor, BatchMissing for an unknown batch."""
        ...

    async def update_file(
        self, store_id: str, file_id: str, attributes: Mapping[str, Attribute]
    ) -> StoreFile:
        """Filters see the new attributes at once in what they let out, and in full when the file
        is COMPLETED again. Raises FileMissing."""
        ...

    async def remove_file(self, store_id: str, file_id: str) -> None:
        """Raises FileMissing."""
        ...

    async def search(self, store_id: str, request: StoreSearch) -> StoreFound:
        """Raises what `Searcher.search` raises."""
        ...


class VectorStoreMissing(IngestError):
    def __init__(self, store_id: str) -> None:
        super().__init__(f"no such vector store: {store_id}")
        self.store_id = store_id


class VectorStoreExpired(IngestError):
    def __init__(self, store_id: str, *, expired_at: int) -> None:
        super().__init__(
            f"the vector store {store_id} expired at {expired_at} (Unix seconds) and holds no "
            "files any more; create a new one"
        )
        self.store_id = store_id


class BatchMissing(IngestError):
    def __init__(self, batch_id: str) -> None:
        super().__init__(f"no such file batch: {batch_id}")
        self.batch_id = batch_id
