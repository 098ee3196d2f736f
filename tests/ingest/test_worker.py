"""The worker's loop: nudges, retries, heartbeats, and stopping without harm."""

import asyncio
import time
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from ingest.api import PermanentError, TransientError
from ingest.jobs import Job, JobKind, JobQueue, JobState
from ingest.worker import Worker, WorkerConfig
from tests.ingest.house import QUICK, House, eventually, open_house


@dataclass(slots=True)
class Handler:
    """Work that does what a test wants."""

    errors: list[Exception] = field(default_factory=list)
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    may_end: asyncio.Event = field(default_factory=asyncio.Event)
    ended: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    trouble: list[Exception] = field(default_factory=list)

    async def run(self, job: Job) -> None:
        if job.kind is JobKind.DELETE:
            self.ended.append(f"deleted {job.file_id}")
            return
        self.begun.set()
        if self.errors:
            raise self.errors.pop(0)
        await self.may_end.wait()
        self.ended.append(job.file_id)

    async def fail(self, job: Job, error: PermanentError) -> None:
        self.failed.append(str(error))
        if self.trouble:
            raise self.trouble.pop()


def worker_of(house: House, handler: Handler, *, poll_s: float = 60.0) -> Worker:
    config = WorkerConfig(poll_s=poll_s, stop_grace_s=0.1)
    return Worker(house.queue, handler, config)


async def test_a_nudge_wakes_a_sleeping_worker(house: House) -> None:
    handler = Handler()
    handler.may_end.set()
    worker = worker_of(house, handler)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(worker.run())
        await asyncio.sleep(0.1)
        record = await house.add(b"text")
        worker.nudge()
        async with asyncio.timeout(5):
            await handler.begun.wait()
        worker.stop()
        await running
    assert handler.ended == [record.id]


async def test_without_a_nudge_the_worker_polls(house: House) -> None:
    handler = Handler()
    worker = worker_of(house, handler, poll_s=0.05)
    async with asyncio.TaskGroup() as group:
        running = group.create_task(worker.run())
        await asyncio.sleep(0.1)
        await house.add(b"text")
        async with asyncio.timeout(5):
            await handler.begun.wait()
        worker.stop()
        await running


async def test_stopping_gives_an_unfinished_job_back_untouched(house: House) -> None:
    handler = Handler()
    worker = worker_of(house, handler)
    await house.add(b"text")
    async with asyncio.TaskGroup() as group:
        running = group.create_task(worker.run())
        await handler.begun.wait()
        worker.stop()
        await running
    assert handler.ended == []
    assert (await house.queue.depth())[JobState.QUEUED] == 1
    job = await house.queue.lease()
    assert job is not None
    assert job.attempts == 1


async def test_heartbeats_hold_a_job_longer_than_its_lease(house: House) -> None:
    handler = Handler()
    worker = worker_of(house, handler)
    await house.add(b"text")
    rival = JobQueue(house.database, QUICK, clock=time.time, rng=Random(1), owner="rival")
    async with asyncio.TaskGroup() as group:
        running = group.create_task(worker.run())
        await handler.begun.wait()
        await asyncio.sleep(3 * QUICK.lease_s)
        assert await rival.lease() is None
        handler.may_end.set()
        worker.stop()
        await running
    assert len(handler.ended) == 1


async def test_work_stops_when_its_file_is_deleted(house: House) -> None:
    handler = Handler()
    worker = worker_of(house, handler, poll_s=0.05)
    record = await house.add(b"text")

    async def deleted() -> bool:
        return handler.ended == [f"deleted {record.id}"]

    async with asyncio.TaskGroup() as group:
        running = group.create_task(worker.run())
        await handler.begun.wait()
        await house.library.delete(record.id)
        await eventually(deleted)
        worker.stop()
        await running
    assert (await house.queue.depth())[JobState.DONE] == 2


async def test_a_refused_file_is_told_to_the_handler_and_the_job_is_done(house: House) -> None:
    handler = Handler(errors=[PermanentError("No.")])
    await house.add(b"text")
    await worker_of(house, handler).run_until_idle()
    assert handler.failed == ["No."]
    assert (await house.queue.depth())[JobState.DONE] == 1


async def test_a_failure_that_cannot_be_recorded_is_tried_again(house: House) -> None:
    errors: list[Exception] = [PermanentError("No."), PermanentError("No.")]
    handler = Handler(errors=errors, trouble=[TransientError("the index is away")])
    await house.add(b"text")
    await worker_of(house, handler).run_until_idle()
    assert handler.failed == ["No.", "No."]
    assert (await house.queue.depth())[JobState.DONE] == 1


async def test_a_bug_is_retried_and_at_last_named(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    handler = Handler(errors=[KeyError("bug") for _ in range(3)])
    await house.add(b"text")
    await worker_of(house, handler).run_until_idle()
    assert handler.failed == ["Gave up after 3 attempts: an unexpected KeyError."]
    assert "job failed" in caplog.text


async def test_a_file_that_kills_its_worker_every_time_is_given_up(house: House) -> None:
    handler = Handler()
    handler.may_end.set()
    await house.add(b"text")
    for _ in range(QUICK.retry.max_attempts):
        assert await house.queue.lease() is not None
        await house.queue.reclaim()
    await worker_of(house, handler).run_until_idle()
    assert handler.ended == []
    [cause] = handler.failed
    assert cause.endswith("the worker stopped each time it read the file.")


async def test_a_broken_database_stops_no_worker(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_house(tmp_path) as house:
        handler = Handler()
        handler.may_end.set()
        worker = worker_of(house, handler, poll_s=0.05)

        async def complained() -> bool:
            return "queue does not answer" in caplog.text

        await house.database.run(lambda c: c.exec_driver_sql("ALTER TABLE jobs RENAME TO away"))
        async with asyncio.TaskGroup() as group:
            running = group.create_task(worker.run())
            await eventually(complained)
            await house.database.run(lambda c: c.exec_driver_sql("ALTER TABLE away RENAME TO jobs"))
            record = await house.add(b"text")
            async with asyncio.timeout(5):
                await handler.begun.wait()
            worker.stop()
            await running
        assert handler.ended == [record.id]
