"""What the gateway's rooms may know of batches: their states, lines, the store of both, errors.

Knows no HTTP and no wire format; a line is a place in its input file.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from gateway.api import GatewayError
from gateway.tenancy.api import Caller
from ingest.stores_api import Page

WINDOW_S = 24 * 3600
MAX_LINES = 50_000
MAX_INPUT_BYTES = 200 * 2**20
"""OpenAI's limits of one batch."""


class BatchStatus(StrEnum):
    VALIDATING = "validating"
    FAILED = "failed"
    IN_PROGRESS = "in_progress"
    FINALIZING = "finalizing"
    COMPLETED = "completed"
    EXPIRED = "expired"
    CANCELLING = "cancelling"
    CANCELLED = "cancelled"


ENDED = (
    BatchStatus.FAILED,
    BatchStatus.COMPLETED,
    BatchStatus.EXPIRED,
    BatchStatus.CANCELLED,
)


class LineState(StrEnum):
    WAITING = "waiting"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFault:
    """Why a batch failed before any line ran, or ended without anybody's asking. `line` counts
    from 1."""

    code: str
    message: str
    line: int | None = None
    param: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LineCounts:
    total: int = 0
    completed: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """`caller` made it, and its lines are asked in that name and within that key's limits.
    `times` are Unix seconds by the status that was reached then."""

    id: str
    caller: Caller
    endpoint: str
    input_file_id: str
    created_at: int
    expires_at: int
    status: BatchStatus = BatchStatus.VALIDATING
    metadata: Mapping[str, str] = field(default_factory=dict)
    output_life_s: int | None = None
    times: Mapping[BatchStatus, int] = field(default_factory=dict)
    errors: Sequence[BatchFault] = ()
    counts: LineCounts = field(default_factory=LineCounts)
    output_file_id: str | None = None
    error_file_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLine:
    """Bytes [start, stop) of the input file. `number` counts from 0 in the file's order.

    Lines of one `kinship` begin with the same text; "" is kin to nobody.
    """

    number: int
    custom_id: str
    start: int
    stop: int
    kinship: str = ""


@dataclass(frozen=True, slots=True)
class LineOutcome:
    """How a line ended, as the line of JSON that its output or error file gets."""

    state: LineState
    text: bytes


@dataclass(frozen=True, slots=True)
class Lease:
    """Who may work on a batch now."""

    batch_id: str
    owner: str


class BatchStore(Protocol):
    """Safe for concurrent use, also by several processes. All raise TransientError while a
    database does not answer.

    A batch is worked on by the holder of its lease; whatever a former holder reports is ignored.
    """

    async def add(self, batch: Batch) -> None: ...

    async def get(self, batch_id: str, *, tenant: str) -> Batch:
        """Raises BatchUnknown."""
        ...

    async def page(self, *, tenant: str, after: str | None, limit: int) -> Page[Batch]:
        """Newest first. Raises BatchUnknown when `after` is."""
        ...

    async def cancel(self, batch_id: str, *, tenant: str, now: int) -> Batch:
        """CANCELLING from now on. Raises BatchUnknown or BatchClosed."""
        ...

    async def claim(self, owner: str, *, lease_s: float) -> Batch | None:
        """The oldest batch that has not ended and that nobody works on."""
        ...

    async def renew(self, lease: Lease, *, lease_s: float) -> BatchStatus | None:
        """Prolong the lease and tell the status; None when it is another's now."""
        ...

    async def release(self, lease: Lease) -> None: ...

    async def fail(self, lease: Lease, errors: Sequence[BatchFault], *, now: int) -> None: ...

    async def accept(self, lease: Lease, lines: Sequence[BatchLine], *, now: int) -> None:
        """IN_PROGRESS with these lines; CANCELLING stays what it is."""
        ...

    async def waiting(self, batch_id: str) -> Sequence[BatchLine]:
        """Lines without an outcome, by number."""
        ...

    async def record(self, lease: Lease, number: int, outcome: LineOutcome) -> bool:
        """The line's one outcome; False when it had one, or the lease is another's."""
        ...

    async def outcomes(
        self, batch_id: str, state: LineState, *, above: int, limit: int
    ) -> Sequence[tuple[int, bytes]]:
        """Texts of outcomes by number, those with a number over `above`."""
        ...

    async def finalize(self, lease: Lease, *, now: int) -> None: ...

    async def end(
        self,
        lease: Lease,
        status: BatchStatus,
        *,
        errors: Sequence[BatchFault] = (),
        output_file_id: str | None,
        error_file_id: str | None,
        now: int,
    ) -> bool:
        """Its last state; the texts of outcomes are forgotten. False when the lease is lost."""
        ...


class BatchUnknown(GatewayError):
    def __init__(self, batch_id: str) -> None:
        super().__init__(f"No batch found with id '{batch_id}'.")
        self.batch_id = batch_id


class BatchClosed(GatewayError):
    """What has ended cannot be cancelled."""

    def __init__(self, batch_id: str, status: BatchStatus) -> None:
        super().__init__(f"Cannot cancel the batch '{batch_id}': it is {status}.")
        self.batch_id = batch_id
        self.status = status
