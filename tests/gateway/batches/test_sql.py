"""Who may change a batch: the holder of its lease, and its own tenant."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.batches.api import (
    Batch,
    BatchClosed,
    BatchLine,
    BatchStatus,
    BatchUnknown,
    Lease,
    LineOutcome,
    LineState,
)
from gateway.batches.sql import SqlBatches
from gateway.tables import metadata
from gateway.tenancy.api import Caller, Grants
from ingest.database import Database, sqlite_url
from tests.contracts.library_benches import Clock

CALLER = Caller("a", "key_1", Grants(models=("fake",), tokens_per_min=9))
LINES = [BatchLine(number=i, custom_id=f"c{i}", start=i, stop=i + 1) for i in range(3)]
DONE = LineOutcome(LineState.SUCCEEDED, b"{}")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def store(tmp_path: Path, clock: Clock) -> AsyncIterator[SqlBatches]:
    database = await Database.connect(sqlite_url(tmp_path / "gateway.db"), metadata)
    store = SqlBatches(database, clock=clock)
    await store.add(
        Batch(
            id="batch_1",
            caller=CALLER,
            endpoint="/v1/responses",
            input_file_id="file-1",
            created_at=1,
            expires_at=2,
            metadata={"größe": "7"},
        )
    )
    yield store
    await database.aclose()


async def test_a_batch_comes_back_as_it_was_with_who_made_it(store: SqlBatches) -> None:
    batch = await store.get("batch_1", tenant="a")
    assert (batch.caller, dict(batch.metadata)) == (CALLER, {"größe": "7"})
    assert batch.status is BatchStatus.VALIDATING


async def test_another_tenant_sees_nothing_of_it(store: SqlBatches) -> None:
    assert (await store.page(tenant="b", after=None, limit=9)).items == []
    for call in (
        store.get("batch_1", tenant="b"),
        store.cancel("batch_1", tenant="b", now=1),
        store.page(tenant="b", after="batch_1", limit=9),
    ):
        with pytest.raises(BatchUnknown):
            await call


async def test_a_worker_that_lost_its_lease_changes_nothing(
    store: SqlBatches, clock: Clock
) -> None:
    old, new = Lease("batch_1", "old"), Lease("batch_1", "new")
    assert await store.claim("old", lease_s=10) is not None
    await store.accept(old, LINES, now=1)
    assert await store.claim("new", lease_s=10) is None
    assert await store.record(old, 0, DONE)
    clock.now += 11
    taken = await store.claim("new", lease_s=10)
    assert taken is not None
    assert taken.status is BatchStatus.IN_PROGRESS
    assert not await store.record(old, 1, DONE)
    assert await store.renew(old, lease_s=10) is None
    ended = {"output_file_id": None, "error_file_id": None, "now": 1}
    assert not await store.end(old, BatchStatus.COMPLETED, **ended)  # type: ignore[arg-type]
    assert [line.number for line in await store.waiting("batch_1")] == [1, 2]
    assert await store.record(new, 1, DONE)
    assert not await store.record(new, 1, DONE)
    counts = (await store.get("batch_1", tenant="a")).counts
    assert (counts.total, counts.completed) == (3, 2)


async def test_a_batch_without_a_lease_is_taken_at_once_and_an_ended_one_never(
    store: SqlBatches,
) -> None:
    lease = Lease("batch_1", "one")
    await store.claim("one", lease_s=10)
    await store.release(lease)
    assert await store.claim("one", lease_s=10) is not None
    ended = {"output_file_id": "file-2", "error_file_id": None, "now": 5}
    assert await store.end(lease, BatchStatus.COMPLETED, **ended)  # type: ignore[arg-type]
    assert await store.claim("two", lease_s=10) is None
    with pytest.raises(BatchClosed):
        await store.cancel("batch_1", tenant="a", now=6)
    batch = await store.get("batch_1", tenant="a")
    assert (batch.output_file_id, batch.times[BatchStatus.COMPLETED]) == ("file-2", 5)
