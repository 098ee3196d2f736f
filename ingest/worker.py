"""The loop that runs ingest jobs. Knows leases, retries and stopping, not what a job does."""

import asyncio
import logging
from dataclasses import dataclass
from typing import Protocol

from ingest.api import FailureCode, IngestError, PermanentError, TransientError
from ingest.jobs import Job, JobQueue

logger = logging.getLogger(__name__)

BEATS_PER_LEASE = 3


class Handler(Protocol):
    """The work behind jobs; `ingest.handler.JobHandler` is one."""

    async def run(self, job: Job) -> None:
        """Raises PermanentError or TransientError."""
        ...

    async def fail(self, job: Job, error: PermanentError) -> None:
        """The job will not be run again: record why, and take back what it wrote."""
        ...


class GaveUp(PermanentError):
    """No attempt is left."""

    failure = FailureCode.SERVER_ERROR


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """`lanes` jobs run at a time; `poll_s` is how long a job can wait that nobody nudged for.

    So many lanes, because small files share commits of the index; the pipeline itself bounds how
    many are parsed and how much text is held.
    """

    lanes: int = 32
    poll_s: float = 1.0
    stop_grace_s: float = 3.0

    def __post_init__(self) -> None:
        if self.lanes < 1 or self.poll_s <= 0 or self.stop_grace_s < 0:
            raise ValueError("lanes and poll_s must be positive, stop_grace_s not negative")


class LeaseLost(IngestError):
    """The job is another worker's now, or its file is deleted: stop and touch nothing."""


class Worker:
    def __init__(self, queue: JobQueue, handler: Handler, config: WorkerConfig) -> None:
        self._queue = queue
        self._handler = handler
        self._config = config
        self._nudged = asyncio.Event()
        self._stopping = asyncio.Event()
        self._looking = asyncio.Lock()

    def nudge(self) -> None:
        """A job was queued; look now rather than at the next poll."""
        self._nudged.set()

    def stop(self) -> None:
        """Begin no further job. Running ones get `stop_grace_s`, then go back to the queue."""
        self._stopping.set()
        self._nudged.set()

    async def run(self) -> None:
        """Run jobs until `stop`; returns when every lane has let go of its job."""
        async with asyncio.TaskGroup() as group:
            lanes = [group.create_task(self._lane()) for _ in range(self._config.lanes)]
            await self._stopping.wait()
            await asyncio.wait(lanes, timeout=self._config.stop_grace_s)
            for lane in lanes:
                lane.cancel()

    async def run_until_idle(self) -> None:
        """Run what is due now, one job after another; returns when nothing is."""
        while (job := await self._queue.lease()) is not None:
            await self._run(job)

    async def _lane(self) -> None:
        while (job := await self._next_job()) is not None:
            try:
                await self._run(job)
            except TransientError as error:
                logger.warning("queue does not answer", extra={"cause": str(error)})

    async def _next_job(self) -> Job | None:
        """One lane at a time looks into the queue. None: no further job is to begin."""
        async with self._looking:
            while not self._stopping.is_set():
                self._nudged.clear()
                try:
                    job = await self._queue.lease()
                except TransientError as error:
                    logger.warning("queue does not answer", extra={"cause": str(error)})
                    job = None
                if job is not None:
                    return job
                await self._wait()
        return None

    async def _wait(self) -> None:
        if self._stopping.is_set():
            return
        try:
            async with asyncio.timeout(self._config.poll_s):
                await self._nudged.wait()
        except TimeoutError:
            return

    async def _run(self, job: Job) -> None:
        """The job edge: whatever happens, the job ends up complete, queued again or dead."""
        try:
            if self._queue.is_exhausted(job):
                await self._give_up(job, "the worker stopped each time it read the file")
                return
            await self._held(job)
            await self._queue.complete(job)
        except asyncio.CancelledError:
            await asyncio.shield(self._queue.release(job))
            raise
        except LeaseLost:
            await self._queue.complete(job)
            logger.info("job dropped", extra=_fields(job))
        except PermanentError as error:
            await self._fail(job, error)
        except TransientError as error:
            await self._again(job, str(error))
        except Exception as error:
            logger.exception("job failed", extra=_fields(job))
            await self._again(job, f"an unexpected {type(error).__name__}")

    async def _held(self, job: Job) -> None:
        """Run the work while its lease is prolonged; stop it when the lease is lost."""
        try:
            async with asyncio.TaskGroup() as group:
                beating = group.create_task(self._beat(job))
                await self._handler.run(job)
                beating.cancel()
        except BaseExceptionGroup as group_error:
            raise _single(group_error) from group_error

    async def _beat(self, job: Job) -> None:
        while True:
            await asyncio.sleep(self._queue.lease_s / BEATS_PER_LEASE)
            if not await self._queue.beat(job):
                raise LeaseLost(f"job {job.id} is no longer ours")

    async def _fail(self, job: Job, error: PermanentError) -> None:
        logger.info("file refused", extra=_fields(job) | {"cause": str(error)})
        try:
            await self._handler.fail(job, error)
        except TransientError as trouble:
            await self._again(job, str(trouble))
            return
        await self._queue.complete(job)

    async def _again(self, job: Job, cause: str) -> None:
        if self._queue.is_last_attempt(job):
            await self._give_up(job, cause)
            return
        logger.warning("job will be retried", extra=_fields(job) | {"cause": cause})
        await self._queue.retry(job, cause)

    async def _give_up(self, job: Job, cause: str) -> None:
        logger.error("job gave up", extra=_fields(job) | {"cause": cause})
        sentence = f"Gave up after {job.attempts} attempts: {cause}."
        try:
            await self._handler.fail(job, GaveUp(sentence))
        except TransientError as trouble:
            logger.warning("what the job wrote stays", extra=_fields(job) | {"cause": str(trouble)})
        await self._queue.bury(job, cause)


def _single(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The one error that ended the work; an error of the work itself comes before a lost lease."""
    errors = [error for error in group.exceptions if not isinstance(error, LeaseLost)]
    return errors[0] if errors else group.exceptions[0]


def _fields(job: Job) -> dict[str, str | int]:
    return {
        "job_id": job.id,
        "kind": job.kind,
        "file_id": job.file_id,
        "attempts": job.attempts,
    }
