"""Statements and rows of vector stores: what is alive, what is shown, rows to values and back.

Each function works inside its caller's transaction.
"""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    and_,
    delete,
    func,
    insert,
    or_,
    select,
    update,
)

from ingest.api import FailureCode, FileMissing, FileStatus, Stage
from ingest.jobs import JobKind, insert_job
from ingest.ledger import living_at, owned_by
from ingest.schema import batches, files, store_files, vector_stores
from ingest.stores_api import (
    BatchMissing,
    Chunking,
    FileCounts,
    NewStoreFile,
    StoreBatch,
    StoreFile,
    StoreFileStatus,
    StoreStatus,
    VectorStoreExpired,
    VectorStoreMissing,
    VectorStoreRecord,
)
from retrieval.api import Attribute

DAY_S = 86_400

AnyRow = Row[*tuple[object, ...]]


@dataclass(frozen=True, slots=True)
class Totals:
    counts: FileCounts
    usage_bytes: int


def living_store(connection: Connection, store_id: str, tenant: str | None) -> AnyRow:
    """Raises VectorStoreMissing."""
    row = connection.execute(select(vector_stores).where(_living(store_id, tenant))).first()
    if row is None:
        raise VectorStoreMissing(store_id)
    return row


def lock_open(connection: Connection, store_id: str, now: float, tenant: str | None) -> AnyRow:
    """Hold the store unchanged until the transaction ends.

    Raises VectorStoreMissing or VectorStoreExpired.
    """
    held = update(vector_stores).where(_living(store_id, tenant)).values(seq=vector_stores.c.seq)
    row = connection.execute(held.returning(*vector_stores.c)).first()
    if row is None:
        raise VectorStoreMissing(store_id)
    refuse_expired(row, now)
    return row


def _living(store_id: str, tenant: str | None) -> ColumnElement[bool]:
    living = (vector_stores.c.id == store_id) & vector_stores.c.deleted_at.is_(None)
    return living & owned_by(vector_stores.c.tenant, tenant)


def refuse_expired(row: AnyRow, now: float) -> None:
    if row.expires_at is not None and row.expires_at <= now:
        raise VectorStoreExpired(row.id, expired_at=row.expires_at)


def touch_store(
    connection: Connection, store_id: str, days: int | None, now: float, **values: object
) -> None:
    used = {"last_active_at": int(now), "expires_at": end_of(now, days)}
    connection.execute(
        update(vector_stores).where(vector_stores.c.id == store_id).values(values | used)
    )


def end_of(now: float, days: int | None) -> int | None:
    return None if days is None else int(now) + days * DAY_S


def attach_files(
    connection: Connection,
    store_id: str,
    new: Sequence[NewStoreFile],
    now: float,
    batch_id: str | None,
) -> None:
    """Of a file named twice the last mention counts."""
    for each in {one.file_id: one for one in new}.values():
        values: dict[str, object] = {
            "batch_id": batch_id,
            "status": StoreFileStatus.IN_PROGRESS,
            "attributes": encode(each.attributes),
            "max_tokens": each.chunking.max_tokens,
            "overlap_tokens": each.chunking.overlap_tokens,
            "revision": new_revision(),
            "cause": None,
            "failure": None,
            "cleared_at": None,
        }
        if not set_file(connection, store_id, each.file_id, **values):
            _insert_anew(connection, store_id, each.file_id, int(now), values)
        insert_job(connection, each.file_id, JobKind.PLACE, now, store_id)


def set_file(connection: Connection, store_id: str, file_id: str, **values: object) -> bool:
    """Change a file that is in the store; False when it is not."""
    living = (
        (store_files.c.store_id == store_id)
        & (store_files.c.file_id == file_id)
        & store_files.c.removed_at.is_(None)
    )
    return connection.execute(update(store_files).where(living).values(values)).rowcount == 1


def _insert_anew(
    connection: Connection, store_id: str, file_id: str, now: int, values: Mapping[str, object]
) -> None:
    """In place of what a removal may have left. Its job finds the new row and leaves it."""
    old = (store_files.c.store_id == store_id) & (store_files.c.file_id == file_id)
    connection.execute(delete(store_files).where(old))
    named = {"store_id": store_id, "file_id": file_id, "created_at": now}
    zeros = {"attempts": 0, "num_chunks": 0, "usage_bytes": 0}
    connection.execute(insert(store_files).values({**named, **zeros, **values}))


def empty_store(connection: Connection, store_id: str, now: float) -> None:
    """Remove every file and queue the clearing of its chunks."""
    held = (store_files.c.store_id == store_id) & store_files.c.removed_at.is_(None)
    removed = update(store_files).where(held).values(removed_at=now)
    file_ids = connection.execute(removed.returning(store_files.c.file_id)).scalars().all()
    for file_id in file_ids:
        insert_job(connection, file_id, JobKind.PLACE, now, store_id)


def in_store(store_id: str, now: float) -> Select[*tuple[object, ...]]:
    """The rows of a store's files, of those that the library still holds."""
    return (
        select(store_files)
        .join(files, files.c.id == store_files.c.file_id)
        .where(
            store_files.c.store_id == store_id, store_files.c.removed_at.is_(None), living_at(now)
        )
    )


def living_row(connection: Connection, store_id: str, file_id: str, now: float) -> AnyRow:
    """Raises FileMissing."""
    statement = in_store(store_id, now).where(store_files.c.file_id == file_id)
    row = connection.execute(statement).first()
    if row is None:
        raise FileMissing(file_id)
    return row


def is_shown(now: float) -> ColumnElement[bool]:
    """Files whose chunks may be found: indexed, also while they are indexed again."""
    is_indexed = or_(
        store_files.c.status == StoreFileStatus.COMPLETED,
        and_(
            store_files.c.status == StoreFileStatus.IN_PROGRESS,
            store_files.c.generation.is_not(None),
        ),
    )
    return and_(
        is_indexed,
        store_files.c.removed_at.is_(None),
        files.c.status == FileStatus.PROCESSED,
        living_at(now),
    )


def totals_of(connection: Connection, store_ids: Sequence[str]) -> dict[str, Totals]:
    grouped = connection.execute(
        select(
            store_files.c.store_id,
            store_files.c.status,
            func.count(),
            func.coalesce(func.sum(store_files.c.usage_bytes), 0),
        )
        .where(store_files.c.store_id.in_(store_ids), store_files.c.removed_at.is_(None))
        .group_by(store_files.c.store_id, store_files.c.status)
    )
    numbers: dict[str, dict[str, int]] = {}
    usage: dict[str, int] = {}
    for store_id, status, count, num_bytes in grouped:
        numbers.setdefault(store_id, {})[status] = count
        usage[store_id] = usage.get(store_id, 0) + int(num_bytes)
    return {one: Totals(FileCounts(**numbers[one]), usage[one]) for one in numbers}


def batch_row(connection: Connection, store_id: str, batch_id: str) -> AnyRow:
    """Raises BatchMissing."""
    named = (batches.c.id == batch_id) & (batches.c.store_id == store_id)
    row = connection.execute(select(batches).where(named)).first()
    if row is None:
        raise BatchMissing(batch_id)
    return row


def batch_counts(connection: Connection, batch_id: str) -> FileCounts:
    grouped = connection.execute(
        select(store_files.c.status, func.count())
        .where(store_files.c.batch_id == batch_id, store_files.c.removed_at.is_(None))
        .group_by(store_files.c.status)
    )
    return FileCounts(**{str(status): int(count) for status, count in grouped})


def store_of(row: AnyRow, totals: Totals | None, now: float) -> VectorStoreRecord:
    is_expired = row.expires_at is not None and row.expires_at <= now
    totals = totals if totals and not is_expired else Totals(FileCounts(), 0)
    status = StoreStatus.IN_PROGRESS if totals.counts.in_progress else StoreStatus.COMPLETED
    return VectorStoreRecord(
        id=row.id,
        name=row.name,
        description=row.description,
        metadata=msgspec.json.decode(row.metadata, type=dict[str, str]),
        created_at=row.created_at,
        last_active_at=row.last_active_at,
        expires_after_days=row.expires_after_days,
        expires_at=row.expires_at,
        status=StoreStatus.EXPIRED if is_expired else status,
        counts=totals.counts,
        usage_bytes=totals.usage_bytes,
    )


def store_file_of(row: AnyRow) -> StoreFile:
    return StoreFile(
        store_id=row.store_id,
        file_id=row.file_id,
        created_at=row.created_at,
        status=StoreFileStatus(row.status),
        attributes=decode_attributes(row.attributes),
        chunking=Chunking(max_tokens=row.max_tokens, overlap_tokens=row.overlap_tokens),
        stage=None if row.stage is None else Stage(row.stage),
        attempts=row.attempts,
        cause=row.cause,
        failure=None if row.failure is None else FailureCode(row.failure),
        num_chunks=row.num_chunks,
        usage_bytes=row.usage_bytes,
    )


def batch_of(row: AnyRow, counts: FileCounts) -> StoreBatch:
    return StoreBatch(
        id=row.id,
        store_id=row.store_id,
        created_at=row.created_at,
        status=batch_status(counts, is_cancelled=row.cancelled_at is not None),
        counts=counts,
    )


def batch_status(counts: FileCounts, *, is_cancelled: bool) -> StoreFileStatus:
    if is_cancelled:
        return StoreFileStatus.CANCELLED
    if counts.in_progress:
        return StoreFileStatus.IN_PROGRESS
    has_only_failed = counts.failed == counts.total > 0
    return StoreFileStatus.FAILED if has_only_failed else StoreFileStatus.COMPLETED


def encode(values: Mapping[str, Attribute]) -> str:
    return msgspec.json.encode(values, order="sorted").decode()


def decode_attributes(raw: str) -> dict[str, Attribute]:
    """An int stays one, as its owner wrote it."""
    return msgspec.json.decode(raw, type=dict[str, bool | int | float | str])


def new_id(prefix: str) -> str:
    return f"{prefix}_{secrets.token_hex(16)}"


def new_revision() -> str:
    return secrets.token_hex(16)
