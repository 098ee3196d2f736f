"""The queue: one holder per job, one job per file, nothing done under a lost lease."""

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

import pytest

from ingest.api import FileRecord, FileStatus
from ingest.database import Database, sqlite_url
from ingest.jobs import Job, JobKind, JobQueue, JobState, QueueConfig, insert_job
from ingest.ledger import Ledger
from ingest.retry import RetryPolicy
from tests.contracts.library_benches import POSTGRES, empty_tables

CONFIG = QueueConfig(lease_s=10, retry=RetryPolicy(max_attempts=2, base_delay_s=4, max_delay_s=4))


@dataclass(slots=True)
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass(slots=True)
class Bench:
    database: Database
    ledger: Ledger
    clock: Clock

    def queue(self, owner: str = "a") -> JobQueue:
        return JobQueue(self.database, CONFIG, clock=self.clock, rng=Random(1), owner=owner)

    async def file(self, file_id: str) -> None:
        """A file, with the ingest job that comes with it."""
        await self.ledger.add(
            FileRecord(
                id=file_id,
                filename="f.txt",
                purpose="user_data",
                num_bytes=1,
                digest="00",
                created_at=1000,
                status=FileStatus.UPLOADED,
            )
        )


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.services)])
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    url = sqlite_url(tmp_path / "m.db")
    if request.param == "postgres":
        url = os.environ.get(POSTGRES, "")
        if not url:
            pytest.skip(f"{POSTGRES} names no database, such as postgresql+asyncpg://…")
    database = await Database.connect(url)
    await database.run(empty_tables)
    clock = Clock()
    yield Bench(database, Ledger(database, clock=clock), clock)
    await database.aclose()


async def leased(queue: JobQueue) -> Job:
    job = await queue.lease()
    assert job is not None
    return job


async def test_of_many_workers_exactly_one_gets_a_job(bench: Bench) -> None:
    await bench.file("file-1")
    got = await asyncio.gather(*(bench.queue(f"w{n}").lease() for n in range(12)))
    assert len([job for job in got if job is not None]) == 1


async def test_twenty_jobs_are_shared_out_without_loss_or_repetition(bench: Bench) -> None:
    for n in range(20):
        await bench.file(f"file-{n}")

    async def drain(owner: str) -> list[str]:
        queue, done = bench.queue(owner), []
        while (job := await queue.lease()) is not None:
            assert await queue.complete(job)
            done.append(job.file_id)
        return done

    shares = await asyncio.gather(*(drain(f"w{n}") for n in range(4)))
    assert sorted(id_ for share in shares for id_ in share) == sorted(
        f"file-{n}" for n in range(20)
    )


async def test_a_job_that_was_seen_is_taken_only_while_it_is_due(bench: Bench) -> None:
    for n in range(3):
        await bench.file(f"file-{n}")
    queue = bench.queue("a")
    taken = {(await leased(queue)).file_id, (await leased(bench.queue("b"))).file_id}
    [third] = {"file-0", "file-1", "file-2"} - taken
    await bench.ledger.tombstone(third, bench.clock())
    removal = await leased(queue)
    assert (removal.kind, removal.file_id) == (JobKind.DELETE, third)
    assert await queue.lease() is None


async def test_an_expired_lease_is_taken_over_and_the_old_holder_changes_nothing(
    bench: Bench,
) -> None:
    await bench.file("file-1")
    first = await leased(bench.queue("a"))
    bench.clock.now += 10.1
    second = await leased(bench.queue("b"))
    assert (second.id, second.attempts) == (first.id, 2)
    queue = bench.queue("a")
    assert not await queue.beat(first)
    assert not await queue.complete(first)
    assert not await queue.retry(first, "late")
    assert not await queue.bury(first, "late")
    assert not await queue.release(first)
    assert await bench.queue("b").complete(second)


async def test_a_heartbeat_keeps_the_lease(bench: Bench) -> None:
    await bench.file("file-1")
    queue = bench.queue("a")
    job = await leased(queue)
    for _ in range(3):
        bench.clock.now += 8
        assert await queue.beat(job)
        assert await bench.queue("b").lease() is None


async def test_a_heartbeat_tells_that_the_file_was_deleted(bench: Bench) -> None:
    await bench.file("file-1")
    queue = bench.queue()
    job = await leased(queue)
    await bench.ledger.tombstone("file-1", bench.clock())
    assert not await queue.beat(job)


async def test_a_delete_waits_for_the_ingest_of_the_same_file(bench: Bench) -> None:
    await bench.file("file-1")
    queue = bench.queue()
    ingest = await leased(queue)
    await bench.ledger.tombstone("file-1", bench.clock())
    assert await bench.queue("b").lease() is None
    await queue.complete(ingest)
    assert (await leased(bench.queue("b"))).kind is JobKind.DELETE


async def test_a_placement_waits_for_the_reading_and_stores_do_not_wait_for_each_other(
    bench: Bench,
) -> None:
    await bench.file("file-1")
    for store_id in ("vs_1", "vs_1", "vs_2"):
        await bench.database.run(
            partial(
                insert_job,
                file_id="file-1",
                kind=JobKind.PLACE,
                now=1000.0,
                collection=store_id,
            )
        )
    ingest = await leased(bench.queue("a"))
    assert ingest.kind is JobKind.INGEST
    assert await bench.queue("b").lease() is None
    await bench.queue("a").complete(ingest)
    first, other = await leased(bench.queue("a")), await leased(bench.queue("b"))
    assert {first.collection, other.collection} == {"vs_1", "vs_2"}
    assert await bench.queue("c").lease() is None
    await bench.queue("a").complete(first)
    await bench.queue("b").complete(other)
    assert (await leased(bench.queue("c"))).collection == "vs_1"


async def test_two_jobs_of_one_file_in_a_collection_never_run_at_once(bench: Bench) -> None:
    await bench.file("file-1")
    for _ in range(6):
        await bench.database.run(lambda c: insert_job(c, "file-1", JobKind.INGEST, bench.clock()))
    got = await asyncio.gather(*(bench.queue(f"w{n}").lease() for n in range(8)))
    assert len([job for job in got if job is not None]) == 1


async def test_dead_letters_are_run_again_and_old_jobs_forgotten(bench: Bench) -> None:
    await bench.file("file-1")
    await bench.file("file-2")
    queue = bench.queue()
    await queue.bury(await leased(queue), "no")
    await queue.complete(await leased(queue))
    bench.clock.now += 100
    assert await queue.trim(done_before=bench.clock(), dead_before=0.0) == 1
    assert await queue.trim(done_before=0.0, dead_before=bench.clock()) == 1
    await bench.file("file-3")
    await queue.bury(await leased(queue), "no")
    assert await queue.revive(bench.clock()) == 0
    assert await queue.revive(bench.clock() + 1) == 1
    assert (await leased(queue)).attempts == 1


async def test_a_retry_waits_and_the_last_attempt_is_known(bench: Bench) -> None:
    await bench.file("file-1")
    queue = bench.queue()
    job = await leased(queue)
    assert not queue.is_last_attempt(job)
    await queue.retry(job, "the index is down")
    bench.clock.now += 4
    job = await leased(queue)
    assert queue.is_last_attempt(job)
    await queue.bury(job, "still down")
    bench.clock.now += 1e6
    assert await queue.lease() is None
    assert (await queue.depth())[JobState.DEAD] == 1


async def test_a_released_job_has_lost_no_attempt(bench: Bench) -> None:
    await bench.file("file-1")
    queue = bench.queue()
    await queue.release(await leased(queue))
    assert (await leased(queue)).attempts == 1


async def test_reclaiming_frees_what_a_dead_worker_held(bench: Bench) -> None:
    await bench.file("file-1")
    await leased(bench.queue("dead"))
    queue = bench.queue("next")
    assert await queue.lease() is None
    assert await queue.reclaim() == 1
    assert (await leased(queue)).attempts == 2
