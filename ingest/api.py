"""What the rest of Ringway may know of ingest: files, their states, the `Library` and errors.

Bytes in, indexed passages out. Knows nothing of chat, routing or OpenAI's wire format.
`ingest.stores_api` says the same of vector stores, `ingest.uploads_api` of uploads in parts.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from retrieval.api import SearchRequest, SearchResult

if TYPE_CHECKING:
    from ingest.stores_api import VectorStores
    from ingest.uploads_api import Uploads


UNREAD_PURPOSES = frozenset({"batch", "batch_output"})
"""Files of these purposes are kept as they came: PROCESSED at once, without text or chunks."""


LOCAL = "local"
"""The tenant of all that came before there were tenants, and of callers without a key."""


class FileStatus(StrEnum):
    UPLOADED = "uploaded"
    IN_PROGRESS = "in_progress"
    PROCESSED = "processed"
    ERROR = "error"


class Stage(StrEnum):
    """What an ingest did last; of a failed one, what it failed at."""

    READING = "reading"
    INDEXING = "indexing"
    CHECKING = "checking"
    DONE = "done"


class FailureCode(StrEnum):
    """Whose fault it was: ours, the type's, or this file's."""

    SERVER_ERROR = "server_error"
    UNSUPPORTED_FILE = "unsupported_file"
    INVALID_FILE = "invalid_file"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRecord:
    """One uploaded file. `cause` is a sentence for people, set exactly when status is ERROR,
    and `failure` with it.

    `digest` is SHA-256 hex of the bytes, `text_digest` of the stored text in UTF-8. `created_at`
    and `expires_at` are Unix seconds; an expired file is missing everywhere. `num_chars` counts
    the stored text, `num_chunks` what the index holds; all are None until processed. `stage` is
    None until an attempt began. `notes` says what of the file was not read, and why; nothing is
    skipped in silence.
    """

    id: str
    filename: str
    purpose: str
    num_bytes: int
    digest: str
    created_at: int
    status: FileStatus
    cause: str | None = None
    notes: tuple[str, ...] = ()
    num_chars: int | None = None
    num_chunks: int | None = None
    text_digest: str | None = None
    expires_at: int | None = None
    failure: FailureCode | None = None
    stage: Stage | None = None
    attempts: int = 0
    tenant: str = LOCAL


@dataclass(frozen=True, slots=True)
class StoredText:
    """What parsing made of a file. Citations are character offsets into `text`."""

    file_id: str
    filename: str
    text: str


@dataclass(frozen=True, slots=True)
class InlineDocument:
    """A document that came inside a request; `id` is the caller's."""

    id: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InlineSearch:
    documents: Sequence[InlineDocument]
    query: str
    top_k: int = 8
    deadline_s: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePage:
    files: Sequence[FileRecord]
    has_more: bool


class Library(Protocol):
    """Every document of one tenant. Used by the gateway; safe for concurrent use.

    What another tenant holds is missing here: its ids raise what unknown ids raise.
    """

    def for_tenant(self, tenant: str) -> "Library":
        """The same library as that tenant sees it; a library itself is that of `LOCAL`."""
        ...

    @property
    def stores(self) -> "VectorStores": ...

    @property
    def uploads(self) -> "Uploads": ...

    async def add(
        self,
        *,
        filename: str,
        purpose: str,
        body: AsyncIterator[bytes],
        expires_after_s: int | None = None,
    ) -> FileRecord:
        """Store the bytes and queue them for ingest; returns with status UPLOADED.

        Raises FileTooLarge while reading, having stored nothing.
        """
        ...

    async def get(self, file_id: str) -> FileRecord:
        """Raises FileMissing."""
        ...

    async def list(
        self, *, after: str | None, limit: int, ascending: bool, purpose: str | None
    ) -> FilePage:
        """Files by creation time. Raises FileMissing when `after` is unknown."""
        ...

    def content(self, file_id: str) -> AsyncIterator[bytes]:
        """The uploaded bytes. Raises FileMissing on first use."""
        ...

    async def delete(self, file_id: str) -> None:
        """Invisible at once, here and in every vector store; chunks, text and blob are gone when
        it returns, or soon after. Raises FileMissing.
        """
        ...

    async def text(self, file_id: str) -> StoredText:
        """Raises FileMissing, FileNotReady until the file is PROCESSED, FileUnreadable on ERROR."""
        ...

    async def search(self, request: SearchRequest) -> SearchResult:
        """Search processed files. Raises what `Searcher.search` raises."""
        ...

    async def search_inline(self, request: InlineSearch) -> SearchResult:
        """Index the documents for this request (cached by digest) and search them.

        Passages name the caller's document ids. Raises what `Searcher.search` raises.
        """
        ...


class IngestError(Exception):
    """Base of all that ingest raises on purpose."""


class FileMissing(IngestError):
    def __init__(self, file_id: str) -> None:
        super().__init__(f"no such file: {file_id}")
        self.file_id = file_id


class FileNotReady(IngestError):
    """Asking again may help: the file is still on its way."""

    def __init__(self, record: FileRecord) -> None:
        super().__init__(f"file {record.id} is {record.status}; wait until it is processed")
        self.record = record


class FileUnreadable(IngestError):
    """The file could not be ingested; asking again cannot help."""

    def __init__(self, record: FileRecord) -> None:
        super().__init__(f"file {record.id} could not be read: {record.cause}")
        self.record = record


def first_status(purpose: str) -> FileStatus:
    """What a new file is, before any worker saw it."""
    return FileStatus.PROCESSED if purpose in UNREAD_PURPOSES else FileStatus.UPLOADED


def unread_cause(purpose: str) -> str:
    return f"files of purpose '{purpose}' are kept as they came and never read as documents"


def refuse_unprocessed(record: FileRecord) -> None:
    """Raises FileNotReady or FileUnreadable unless the file is PROCESSED and has a text."""
    if record.purpose in UNREAD_PURPOSES:
        raise FileUnreadable(replace(record, cause=unread_cause(record.purpose)))
    if record.status is FileStatus.ERROR:
        raise FileUnreadable(record)
    if record.status is not FileStatus.PROCESSED:
        raise FileNotReady(record)


class FileTooLarge(IngestError):
    def __init__(self, *, limit_bytes: int) -> None:
        super().__init__(f"the file is larger than {limit_bytes} bytes")
        self.limit_bytes = limit_bytes


class PermanentError(IngestError):
    """Trying again cannot help; the message is the file's cause, a sentence for people."""

    failure = FailureCode.INVALID_FILE


class UnsupportedFile(PermanentError):
    """The file is whole, but of a type that nobody here reads."""

    failure = FailureCode.UNSUPPORTED_FILE


class TransientError(IngestError):
    """Trying again may help."""
