"""Works through batches in the background, within bounds. Knows leases, waves and endings; what a
line asks is the endpoint's business.

Whatever happens to this process, each line ends once: its outcome is recorded only by the holder
of the batch's lease, and only while it has none.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO, Protocol

import msgspec

from gateway.batches.api import (
    Batch,
    BatchFault,
    BatchLine,
    BatchStatus,
    BatchStore,
    Lease,
    LineState,
)
from gateway.batches.calls import CallAnswer
from gateway.batches.files import answered, spooled_input, unanswered, write_results
from gateway.batches.input_file import Checked, check_input, read_line
from gateway.batches.waves import waves_of
from gateway.tenancy.api import Caller
from gateway.together import beside
from ingest.api import FileMissing, Library, TransientError

logger = logging.getLogger(__name__)

RETRIED = (502, 503, 504)
"""Statuses of what may be well again later; a limit's 429 says whether it is worth waiting for."""

UNCACHED = ("/v1/embeddings",)
"""Endpoints whose bodies have no prompt cache and no tier."""


KEY_ENDED = "The API key that made this batch was revoked or has expired."


class Calls(Protocol):
    """How lines are asked."""

    async def may_ask(self, caller: Caller) -> bool:
        """Whether who made a batch still may. Raises TransientError."""
        ...

    async def post(self, path: str, body: bytes, caller: Caller) -> CallAnswer: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerConfig:
    """`num_lines` run at a time, over all of `num_batches`. A line that finds no room is asked
    again after `retry_s`, twice that, and so on up to `most_s`, `attempts` times in all."""

    num_batches: int = 2
    num_lines: int = 4
    poll_s: float = 1.0
    lease_s: float = 30.0
    attempts: int = 12
    retry_s: float = 1.0
    most_s: float = 60.0

    def __post_init__(self) -> None:
        if min(self.num_batches, self.num_lines, self.attempts) < 1:
            raise ValueError("num_batches, num_lines and attempts must be positive")
        if not 0 < self.poll_s < self.lease_s:
            raise ValueError("poll_s must be positive and less than lease_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A batch that this process works on."""

    batch: Batch
    lease: Lease
    library: Library
    file: BinaryIO
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)


class LeaseLost(Exception):
    """The batch is another worker's now: stop and touch nothing."""


class Halted(Exception):
    """No further line is to run; those without an outcome get this one. What nobody asked for is
    told of the batch too: `faults`."""

    def __init__(
        self, ending: BatchStatus, code: str, message: str, faults: Sequence[BatchFault] = ()
    ) -> None:
        super().__init__(message)
        self.ending = ending
        self.code = code
        self.faults = faults


class BatchRunner:
    def __init__(
        self,
        store: BatchStore,
        library: Library,
        calls: Calls,
        config: RunnerConfig | None = None,
        *,
        clock: Callable[[], float],
        new_id: Callable[[], str],
    ) -> None:
        self._store = store
        self._library = library
        self._calls = calls
        self._config = config or RunnerConfig()
        self._clock = clock
        self._new_id = new_id
        self._room = asyncio.Semaphore(self._config.num_lines)

    async def run(self) -> None:
        """Work until cancelled; what is then unfinished is there for the next one."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._config.num_batches):
                group.create_task(self._desk())

    async def _desk(self) -> None:
        """The job edge: whatever happens with one batch, the next is looked for."""
        owner = self._new_id()
        while True:
            try:
                batch = await self._store.claim(owner, lease_s=self._config.lease_s)
                if batch is not None:
                    await self._leased(batch, Lease(batch.id, owner))
                    continue
            except LeaseLost:
                logger.warning("batch is another's now")
            except TransientError as error:
                logger.warning("batches do not answer", extra={"cause": str(error)})
            except Exception:
                logger.exception("batch failed; it will be tried again")
            await asyncio.sleep(self._config.poll_s)

    async def _leased(self, batch: Batch, lease: Lease) -> None:
        try:
            await self._work(batch, lease)
        finally:
            await asyncio.shield(self._store.release(lease))

    async def _work(self, batch: Batch, lease: Lease) -> None:
        library = self._library.for_tenant(batch.caller.tenant)
        logger.info("batch", extra={"batch_id": batch.id, "status": batch.status})
        try:
            async with spooled_input(library, batch.input_file_id) as file:
                work = Work(batch=batch, lease=lease, library=library, file=file)
                await self._run_lines(work)
        except FileMissing as error:
            await self._without_input(batch, lease, library, error)

    async def _run_lines(self, work: Work) -> None:
        ending = Halted(BatchStatus.COMPLETED, "", "")
        try:
            async with beside(self._watch(work)):
                lines = await self._lines(work)
                if lines is None:
                    return
                for wave in waves_of(lines):
                    async with asyncio.TaskGroup() as group:
                        for line in wave:
                            group.create_task(self._line(work, line))
        except Halted as halt:
            ending = halt
        await self._end(work.batch, work.lease, work.library, ending)

    async def _lines(self, work: Work) -> Sequence[BatchLine] | None:
        """What is left to do; None when the input is refused, which ends the batch."""
        batch = work.batch
        if batch.status is BatchStatus.VALIDATING:
            checked: Checked = await asyncio.to_thread(check_input, work.file, batch.endpoint)
            if checked.faults:
                await self._store.fail(work.lease, checked.faults, now=self._now())
                return None
            await self._store.accept(work.lease, checked.lines, now=self._now())
        return await self._store.waiting(batch.id)

    async def _watch(self, work: Work) -> None:
        """Keep the lease, and notice what ends the batch early."""
        while True:
            self._refuse_expired(work.batch)
            status = await self._store.renew(work.lease, lease_s=self._config.lease_s)
            if status is None:
                raise LeaseLost("the lease is another's")
            if status is BatchStatus.CANCELLING:
                raise Halted(BatchStatus.CANCELLED, "batch_cancelled", "The batch was cancelled.")
            await self._refuse_keyless(work.batch)
            await asyncio.sleep(self._config.poll_s)

    def _refuse_expired(self, batch: Batch) -> None:
        if self._clock() >= batch.expires_at:
            raise Halted(
                BatchStatus.EXPIRED,
                "batch_expired",
                "This request was not run before the batch's completion window ended.",
            )

    async def _refuse_keyless(self, batch: Batch) -> None:
        """A batch has what its key grants, and that is nothing once the key is gone."""
        if not await self._calls.may_ask(batch.caller):
            code = "invalid_api_key"
            fault = BatchFault(code=code, message=KEY_ENDED)
            raise Halted(BatchStatus.CANCELLED, code, KEY_ENDED, [fault])

    async def _line(self, work: Work, line: BatchLine) -> None:
        async with self._room:
            async with work.reading:
                found = await asyncio.to_thread(read_line, work.file, line)
            body = msgspec.json.encode(_prepared(found.body, line, work.batch))
            answer = await self._asked(work.batch, body)
        await self._store.record(work.lease, line.number, answered(work.batch, line, answer))

    async def _asked(self, batch: Batch, body: bytes) -> CallAnswer:
        config, tries = self._config, 0
        while True:
            answer = await self._calls.post(batch.endpoint, body, batch.caller)
            tries += 1
            if tries >= config.attempts or not _may_pass(answer):
                return answer
            await asyncio.sleep(min(config.most_s, config.retry_s * 2 ** (tries - 1)))

    async def _without_input(
        self, batch: Batch, lease: Lease, library: Library, error: FileMissing
    ) -> None:
        """The input was deleted: nothing begins, and of a begun batch the rest fails."""
        if batch.status is BatchStatus.VALIDATING:
            fault = BatchFault(code="file_not_found", message=str(error), param="input_file_id")
            await self._store.fail(lease, [fault], now=self._now())
            return
        is_cancelled = batch.status is BatchStatus.CANCELLING
        status = BatchStatus.CANCELLED if is_cancelled else BatchStatus.COMPLETED
        await self._end(batch, lease, library, Halted(status, "file_not_found", str(error)))

    async def _end(self, batch: Batch, lease: Lease, library: Library, ending: Halted) -> None:
        async with beside(self._hold(lease)):
            await self._ended(batch, lease, library, ending)

    async def _hold(self, lease: Lease) -> None:
        while True:
            await self._store.renew(lease, lease_s=self._config.lease_s)
            await asyncio.sleep(self._config.poll_s)

    async def _ended(self, batch: Batch, lease: Lease, library: Library, ending: Halted) -> None:
        store = self._store
        for line in await store.waiting(batch.id):
            outcome = unanswered(batch, line, ending.code, str(ending))
            await store.record(lease, line.number, outcome)
        await store.finalize(lease, now=self._now())
        output_id = await write_results(store, library, batch, LineState.SUCCEEDED)
        error_id = await write_results(store, library, batch, LineState.FAILED)
        has_ended = await store.end(
            lease,
            ending.ending,
            errors=ending.faults,
            output_file_id=output_id,
            error_file_id=error_id,
            now=self._now(),
        )
        if not has_ended:
            for file_id in (output_id, error_id):
                if file_id is not None:
                    await library.delete(file_id)
            raise LeaseLost("the lease is another's")
        logger.info("batch ended", extra={"batch_id": batch.id, "status": ending.ending})

    def _now(self) -> int:
        return int(self._clock())


def _may_pass(answer: CallAnswer) -> bool:
    return answer.status in RETRIED or (answer.status == 429 and "retry-after" in answer.headers)


def _prepared(body: Mapping[str, object], line: BatchLine, batch: Batch) -> Mapping[str, object]:
    """The line's body in the batch's class, and with its kin in one session of the cache."""
    if batch.endpoint in UNCACHED:
        return body
    prepared = {**body, "service_tier": "flex"}
    if line.kinship and body.get("prompt_cache_key") is None:
        prepared["prompt_cache_key"] = f"batch-{line.kinship}"
    return prepared
