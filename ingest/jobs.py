"""The queue of ingest jobs in the database: leases, retries, dead letters. Knows no job's work."""

import secrets
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Connection,
    Float,
    Row,
    and_,
    bindparam,
    delete,
    exists,
    func,
    insert,
    or_,
    select,
    update,
)

from ingest.database import Database
from ingest.retry import RetryPolicy, delay_before
from ingest.schema import files, jobs
from retrieval.api import LIBRARY

CANDIDATES_AT_A_TIME = 32


class JobKind(StrEnum):
    """PLACE brings a file's place in a vector store in line with what its row says."""

    INGEST = "ingest"
    DELETE = "delete"
    PLACE = "place"


class JobState(StrEnum):
    QUEUED = "queued"
    LEASED = "leased"
    DONE = "done"
    DEAD = "dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One leased job. `attempts` counts this one; with the owner it names the lease.

    `collection` is the vector store's id for PLACE, else the library.
    """

    id: str
    kind: JobKind
    file_id: str
    attempts: int
    owner: str
    collection: str = LIBRARY


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueConfig:
    lease_s: float = 30.0
    retry: RetryPolicy = field(default_factory=RetryPolicy)

    def __post_init__(self) -> None:
        if self.lease_s <= 0:
            raise ValueError(f"lease_s must be positive, not {self.lease_s}")


class JobQueue:
    """At most one job of a file in a collection is leased at a time, so a delete never overtakes
    an ingest; a PLACE waits until the file was read.

    Every change is one UPDATE guarded by the lease it was made under: a worker that lost its
    lease changes nothing.
    """

    def __init__(
        self,
        database: Database,
        config: QueueConfig,
        *,
        clock: Callable[[], float],
        rng: Random,
        owner: str | None = None,
    ) -> None:
        self._database = database
        self._config = config
        self._clock = clock
        self._rng = rng
        self._owner = owner or f"worker-{secrets.token_hex(8)}"
        self._seen: deque[tuple[str, str]] = deque()
        """Jobs that were due when last looked for, the longest waiting first."""

    @property
    def lease_s(self) -> float:
        return self._config.lease_s

    async def enqueue(self, file_id: str, kind: JobKind) -> None:
        now = self._clock()
        await self._database.run(lambda connection: insert_job(connection, file_id, kind, now))

    async def lease(self) -> Job | None:
        """Take the job that has waited longest, or one whose worker fell silent.

        Finding jobs costs more than taking one, so a look finds several; each is taken only if it
        is due still.
        """
        if (job := await self._first_of_seen()) is not None:
            return job
        self._seen.extend(await self._database.run(self._candidates))
        return await self._first_of_seen()

    async def beat(self, job: Job) -> bool:
        """Prolong the lease. False: it is lost, or the file was deleted; stop the work."""
        wanted = or_(jobs.c.kind != JobKind.INGEST, _file_lives())
        return await self._change(job, wanted, lease_until=self._clock() + self._config.lease_s)

    async def complete(self, job: Job) -> bool:
        return await self._settle(job, state=JobState.DONE, settled_at=self._clock())

    async def release(self, job: Job) -> bool:
        """Give the job back as if it had not been taken: the worker stops, the job is fine."""
        return await self._settle(
            job, state=JobState.QUEUED, attempts=job.attempts - 1, next_attempt_at=self._clock()
        )

    def is_last_attempt(self, job: Job) -> bool:
        return job.attempts >= self._config.retry.max_attempts

    def is_exhausted(self, job: Job) -> bool:
        """Every attempt was used up, the last by a worker that never reported back."""
        return job.attempts > self._config.retry.max_attempts

    async def retry(self, job: Job, cause: str) -> bool:
        """Run the job again later, with jitter."""
        delay_s = delay_before(job.attempts + 1, self._config.retry, self._rng)
        return await self._settle(
            job, state=JobState.QUEUED, cause=cause, next_attempt_at=self._clock() + delay_s
        )

    async def bury(self, job: Job, cause: str) -> bool:
        """Keep the job as a dead letter; nobody runs it again."""
        return await self._settle(job, state=JobState.DEAD, cause=cause, settled_at=self._clock())

    async def reclaim(self) -> int:
        """Expire every lease at once. Only for a worker that knows it is the only one."""
        statement = update(jobs).where(jobs.c.state == JobState.LEASED).values(lease_until=0.0)
        return await self._database.run(lambda connection: connection.execute(statement).rowcount)

    async def revive(self, buried_before: float) -> int:
        """Run dead letters once more, all their attempts: what failed stays failed, but what it
        left is removed. Returns how many."""
        buried = (jobs.c.state == JobState.DEAD) & (jobs.c.settled_at < buried_before)
        statement = (
            update(jobs)
            .where(buried)
            .values(
                state=JobState.QUEUED, attempts=0, next_attempt_at=self._clock(), settled_at=None
            )
        )
        return await self._database.run(lambda connection: connection.execute(statement).rowcount)

    async def trim(self, *, done_before: float, dead_before: float) -> int:
        """Forget jobs that ended before these times; returns how many."""
        statement = delete(jobs).where(
            or_(
                and_(jobs.c.state == JobState.DONE, jobs.c.settled_at < done_before),
                and_(jobs.c.state == JobState.DEAD, jobs.c.settled_at < dead_before),
            )
        )
        return await self._database.run(lambda connection: connection.execute(statement).rowcount)

    async def depth(self) -> dict[JobState, int]:
        """How many jobs are in each state."""
        statement = select(jobs.c.state, func.count()).group_by(jobs.c.state)
        rows = await self._database.run(lambda connection: connection.execute(statement).all())
        return dict.fromkeys(JobState, 0) | {JobState(state): count for state, count in rows}

    async def _first_of_seen(self) -> Job | None:
        while self._seen:
            job_id, file_id = self._seen.popleft()
            job = await self._try_lease(job_id, file_id)
            if job is not None:
                return job
        return None

    def _candidates(self, connection: Connection) -> list[tuple[str, str]]:
        found = connection.execute(_DUE_JOBS, {"now": self._clock()})
        return [(row.id, row.file_id) for row in found]

    async def _try_lease(self, job_id: str, file_id: str) -> Job | None:
        now = self._clock()
        values = {
            "job_id": job_id,
            "now": now,
            "owner": self._owner,
            "until": now + self._config.lease_s,
        }

        def work(connection: Connection) -> Row[tuple[str, int, str]] | None:
            _one_lease_at_a_time(connection, file_id)
            return connection.execute(_TAKE, values).first()

        row = await self._database.run(work)
        if row is None:
            return None
        return Job(
            id=job_id,
            kind=JobKind(row.kind),
            file_id=file_id,
            attempts=row.attempts,
            owner=self._owner,
            collection=row.collection,
        )

    async def _settle(self, job: Job, **values: object) -> bool:
        return await self._change(job, None, lease_owner=None, lease_until=None, **values)

    async def _change(
        self, job: Job, condition: ColumnElement[bool] | None, **values: object
    ) -> bool:
        statement = update(jobs).where(
            jobs.c.id == job.id,
            jobs.c.state == JobState.LEASED,
            jobs.c.lease_owner == job.owner,
            jobs.c.attempts == job.attempts,
        )
        if condition is not None:
            statement = statement.where(condition)
        changing = statement.values(values)
        return await self._database.run(
            lambda connection: connection.execute(changing).rowcount == 1
        )


def _is_due() -> ColumnElement[bool]:
    now: BindParameter[float] = bindparam("now", type_=Float())
    waiting = and_(jobs.c.state == JobState.QUEUED, jobs.c.next_attempt_at <= now)
    abandoned = and_(jobs.c.state == JobState.LEASED, jobs.c.lease_until < now)
    other = jobs.alias("other")
    is_running = and_(
        other.c.collection == jobs.c.collection,
        other.c.state == JobState.LEASED,
        other.c.lease_until >= now,
    )
    is_unread = and_(
        jobs.c.kind == JobKind.PLACE,
        other.c.kind == JobKind.INGEST,
        other.c.state.in_([JobState.QUEUED, JobState.LEASED]),
    )
    is_blocked = exists().where(
        other.c.file_id == jobs.c.file_id,
        other.c.id != jobs.c.id,
        or_(is_running, is_unread),
    )
    return and_(or_(waiting, abandoned), ~is_blocked)


_DUE_JOBS = (
    select(jobs.c.id, jobs.c.file_id)
    .where(_is_due())
    .order_by(jobs.c.next_attempt_at, jobs.c.created_at)
    .limit(CANDIDATES_AT_A_TIME)
)
_TAKE = (
    update(jobs)
    .where(jobs.c.id == bindparam("job_id"), _is_due())
    .values(
        state=JobState.LEASED,
        lease_owner=bindparam("owner"),
        lease_until=bindparam("until"),
        attempts=jobs.c.attempts + 1,
    )
    .returning(jobs.c.kind, jobs.c.attempts, jobs.c.collection)
)


def _one_lease_at_a_time(connection: Connection, file_id: str) -> None:
    """SQLite has one writer; elsewhere two leases of one file's jobs could pass each other."""
    if connection.dialect.name != "sqlite":
        connection.execute(select(files.c.seq).where(files.c.id == file_id).with_for_update())


def insert_job(
    connection: Connection, file_id: str, kind: JobKind, now: float, collection: str = LIBRARY
) -> None:
    connection.execute(
        insert(jobs).values(
            id=f"job-{secrets.token_hex(12)}",
            kind=kind,
            file_id=file_id,
            collection=collection,
            state=JobState.QUEUED,
            attempts=0,
            next_attempt_at=now,
            created_at=now,
        )
    )


def drop_waiting_ingest(connection: Connection, file_id: str) -> None:
    connection.execute(
        update(jobs)
        .where(
            jobs.c.file_id == file_id,
            jobs.c.kind == JobKind.INGEST,
            jobs.c.state == JobState.QUEUED,
        )
        .values(
            state=JobState.DONE,
            cause="the file was deleted",
            settled_at=jobs.c.next_attempt_at,
        )
    )


def _file_lives() -> ColumnElement[bool]:
    return exists().where(files.c.id == jobs.c.file_id, files.c.deleted_at.is_(None))
