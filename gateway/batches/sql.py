"""Batches and their lines as rows. Every change is one guarded UPDATE, so work that is done twice
or by a worker that lost its lease changes nothing."""

import time
from collections.abc import Callable, Sequence

import msgspec
from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Row,
    and_,
    case,
    delete,
    exists,
    insert,
    or_,
    select,
    update,
)

from gateway.batches.api import (
    ENDED,
    Batch,
    BatchClosed,
    BatchFault,
    BatchLine,
    BatchStatus,
    BatchUnknown,
    Lease,
    LineCounts,
    LineOutcome,
    LineState,
)
from gateway.tables import batch_lines as lines
from gateway.tables import batches
from gateway.tenancy.api import Caller
from ingest.database import Database
from ingest.paging import page_rows
from ingest.stores_api import Page, PageRequest

AnyRow = Row[*tuple[object, ...]]

ROWS_PER_INSERT = 500

TIMES = {
    BatchStatus.IN_PROGRESS: batches.c.in_progress_at,
    BatchStatus.FINALIZING: batches.c.finalizing_at,
    BatchStatus.COMPLETED: batches.c.completed_at,
    BatchStatus.FAILED: batches.c.failed_at,
    BatchStatus.EXPIRED: batches.c.expired_at,
    BatchStatus.CANCELLING: batches.c.cancelling_at,
    BatchStatus.CANCELLED: batches.c.cancelled_at,
}

COUNTED = {
    LineState.SUCCEEDED: batches.c.num_completed,
    LineState.FAILED: batches.c.num_failed,
}

_faults = msgspec.json.Decoder(list[BatchFault])
_caller = msgspec.json.Decoder(Caller)
_metadata = msgspec.json.Decoder(dict[str, str])


class SqlBatches:
    """A `BatchStore` in a database."""

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    async def add(self, batch: Batch) -> None:
        values = insert(batches).values(
            id=batch.id,
            tenant=batch.caller.tenant,
            caller=_text(batch.caller),
            endpoint=batch.endpoint,
            input_file_id=batch.input_file_id,
            metadata=_text(batch.metadata),
            status=batch.status,
            created_at=batch.created_at,
            expires_at=batch.expires_at,
            output_life_s=batch.output_life_s,
            errors=_text(batch.errors),
            num_lines=0,
            num_completed=0,
            num_failed=0,
        )
        await self._database.run(lambda connection: connection.execute(values))

    async def get(self, batch_id: str, *, tenant: str) -> Batch:
        statement = select(batches).where(batches.c.id == batch_id, batches.c.tenant == tenant)
        row = await self._database.run(lambda connection: connection.execute(statement).first())
        if row is None:
            raise BatchUnknown(batch_id)
        return _batch(row)

    async def page(self, *, tenant: str, after: str | None, limit: int) -> Page[Batch]:
        theirs = batches.c.tenant == tenant

        def place_of(connection: Connection, batch_id: str) -> int:
            wanted = select(batches.c.seq).where(batches.c.id == batch_id, theirs)
            seq = connection.scalar(wanted)
            if seq is None:
                raise BatchUnknown(batch_id)
            return int(seq)

        def work(connection: Connection) -> Page[Batch]:
            rows, has_more = page_rows(
                connection,
                select(batches).where(theirs),
                batches.c.seq,
                PageRequest(after=after, limit=limit),
                lambda batch_id: place_of(connection, batch_id),
            )
            return Page(items=[_batch(row) for row in rows], has_more=has_more)

        return await self._database.run(work)

    async def cancel(self, batch_id: str, *, tenant: str, now: int) -> Batch:
        open_ones = batches.c.status.in_([BatchStatus.VALIDATING, BatchStatus.IN_PROGRESS])
        changed = (
            update(batches)
            .where(batches.c.id == batch_id, batches.c.tenant == tenant, open_ones)
            .values(status=BatchStatus.CANCELLING, cancelling_at=now)
        )
        rowcount = await self._database.run(lambda c: c.execute(changed).rowcount)
        batch = await self.get(batch_id, tenant=tenant)
        if rowcount != 1 and batch.status is not BatchStatus.CANCELLING:
            raise BatchClosed(batch_id, batch.status)
        return batch

    async def claim(self, owner: str, *, lease_s: float) -> Batch | None:
        now = self._clock()
        free = and_(
            batches.c.status.not_in(ENDED),
            or_(batches.c.lease_until.is_(None), batches.c.lease_until <= now),
        )
        oldest = select(batches.c.id).where(free).order_by(batches.c.seq).limit(1)
        taken = (
            update(batches)
            .where(batches.c.id == oldest.scalar_subquery(), free)
            .values(lease_owner=owner, lease_until=now + lease_s)
            .returning(batches)
        )
        row = await self._database.run(lambda connection: connection.execute(taken).first())
        return None if row is None else _batch(row)

    async def renew(self, lease: Lease, *, lease_s: float) -> BatchStatus | None:
        held = (
            update(batches)
            .where(_held(lease))
            .values(lease_until=self._clock() + lease_s)
            .returning(batches.c.status)
        )
        status = await self._database.run(lambda connection: connection.scalar(held))
        return None if status is None else BatchStatus(status)

    async def release(self, lease: Lease) -> None:
        await self._change(lease, {batches.c.lease_until: None, batches.c.lease_owner: None})

    async def fail(self, lease: Lease, errors: Sequence[BatchFault], *, now: int) -> None:
        await self._change(
            lease, {**_reached(BatchStatus.FAILED, now), batches.c.errors: _text(errors)}
        )

    async def accept(self, lease: Lease, accepted: Sequence[BatchLine], *, now: int) -> None:
        is_new = batches.c.status == BatchStatus.VALIDATING
        held = (
            update(batches)
            .where(_held(lease), batches.c.num_lines == 0)
            .values(
                num_lines=len(accepted),
                in_progress_at=now,
                status=case((is_new, BatchStatus.IN_PROGRESS.value), else_=batches.c.status),
            )
        )
        rows = [_line_values(lease.batch_id, line) for line in accepted]

        def work(connection: Connection) -> None:
            if connection.execute(held).rowcount == 1:
                for first in range(0, len(rows), ROWS_PER_INSERT):
                    connection.execute(insert(lines), rows[first : first + ROWS_PER_INSERT])

        await self._database.run(work)

    async def waiting(self, batch_id: str) -> Sequence[BatchLine]:
        statement = (
            select(lines)
            .where(lines.c.batch_id == batch_id, lines.c.state == LineState.WAITING)
            .order_by(lines.c.number)
        )
        rows = await self._database.run(lambda c: c.execute(statement).all())
        return [_line(row) for row in rows]

    async def record(self, lease: Lease, number: int, outcome: LineOutcome) -> bool:
        ended = (
            update(lines)
            .where(
                lines.c.batch_id == lease.batch_id,
                lines.c.number == number,
                lines.c.state == LineState.WAITING,
                exists().where(_held(lease)),
            )
            .values(state=outcome.state, outcome=outcome.text)
        )
        counter = COUNTED[outcome.state]
        counted = update(batches).where(batches.c.id == lease.batch_id)
        counted = counted.values({counter: counter + 1})

        def work(connection: Connection) -> bool:
            if connection.execute(ended).rowcount != 1:
                return False
            connection.execute(counted)
            return True

        return await self._database.run(work)

    async def outcomes(
        self, batch_id: str, state: LineState, *, above: int, limit: int
    ) -> Sequence[tuple[int, bytes]]:
        statement = (
            select(lines.c.number, lines.c.outcome)
            .where(lines.c.batch_id == batch_id, lines.c.state == state, lines.c.number > above)
            .order_by(lines.c.number)
            .limit(limit)
        )
        rows = await self._database.run(lambda c: c.execute(statement).all())
        return [(row.number, row.outcome) for row in rows]

    async def finalize(self, lease: Lease, *, now: int) -> None:
        finishing = batches.c.status.in_([BatchStatus.IN_PROGRESS, BatchStatus.FINALIZING])
        await self._change(lease, _reached(BatchStatus.FINALIZING, now), finishing)

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
        files = {
            batches.c.errors: _text(errors),
            batches.c.output_file_id: output_file_id,
            batches.c.error_file_id: error_file_id,
            batches.c.lease_until: None,
            batches.c.lease_owner: None,
        }
        ended = update(batches).where(_held(lease)).values({**_reached(status, now), **files})
        spent = delete(lines).where(lines.c.batch_id == lease.batch_id)

        def work(connection: Connection) -> bool:
            if connection.execute(ended).rowcount != 1:
                return False
            connection.execute(spent)
            return True

        return await self._database.run(work)

    async def _change(
        self,
        lease: Lease,
        values: dict[Column[object], object],
        condition: ColumnElement[bool] | None = None,
    ) -> None:
        changed = update(batches).where(_held(lease)).values(values)
        if condition is not None:
            changed = changed.where(condition)
        await self._database.run(lambda connection: connection.execute(changed))


def _held(lease: Lease) -> ColumnElement[bool]:
    return and_(batches.c.id == lease.batch_id, batches.c.lease_owner == lease.owner)


def _reached(status: BatchStatus, now: int) -> dict[Column[object], object]:
    return {batches.c.status: status, TIMES[status]: now}


def _line_values(batch_id: str, line: BatchLine) -> dict[str, object]:
    return {
        "batch_id": batch_id,
        "number": line.number,
        "custom_id": line.custom_id,
        "start": line.start,
        "stop": line.stop,
        "kinship": line.kinship,
        "state": LineState.WAITING,
    }


def _line(row: AnyRow) -> BatchLine:
    return BatchLine(
        number=row.number,
        custom_id=row.custom_id,
        start=row.start,
        stop=row.stop,
        kinship=row.kinship,
    )


def _batch(row: AnyRow) -> Batch:
    times = {status: getattr(row, str(column.name)) for status, column in TIMES.items()}
    return Batch(
        id=row.id,
        caller=_caller.decode(row.caller),
        endpoint=row.endpoint,
        input_file_id=row.input_file_id,
        created_at=row.created_at,
        expires_at=row.expires_at,
        status=BatchStatus(row.status),
        metadata=_metadata.decode(row.metadata),
        output_life_s=row.output_life_s,
        times={status: at for status, at in times.items() if at is not None},
        errors=_faults.decode(row.errors),
        counts=LineCounts(total=row.num_lines, completed=row.num_completed, failed=row.num_failed),
        output_file_id=row.output_file_id,
        error_file_id=row.error_file_id,
    )


def _text(value: object) -> str:
    return msgspec.json.encode(value).decode()
