"""A file's place in a vector store: done once, twice, in the wrong order, and taken back."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from ingest.api import FailureCode, FileStatus, TransientError
from ingest.handler import JobHandler
from ingest.jobs import Job, JobKind, JobState, insert_job
from ingest.pipeline import Pipeline, PipelineConfig
from ingest.stores_api import (
    Chunking,
    NewStoreFile,
    NewVectorStore,
    PageRequest,
    StoreFileStatus,
)
from ingest.texts import vectors_prefix
from retrieval.api import Chunk, StoreQuery
from retrieval.embedder import FakeEmbedder
from tests.ingest.house import SMALL_CHUNKS, House, PlainSandbox, handler_of, open_house
from tests.ingest.test_pipeline import LEASE, TroubledStore


class CountingEmbedder(FakeEmbedder):
    """Counts the texts that it embedded."""

    num_texts = 0

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        self.num_texts += len(texts)
        return await super().embed(texts)


@pytest.fixture
def troubled() -> TroubledStore:
    return TroubledStore()


@pytest.fixture
async def shaky(tmp_path: Path, troubled: TroubledStore) -> AsyncIterator[House]:
    async with open_house(tmp_path, store=troubled, sandbox=PlainSandbox()) as house:
        yield house


async def in_store(house: House, *file_ids: str, chunking: Chunking | None = None) -> str:
    new = [NewStoreFile(file_id=one, chunking=chunking or Chunking()) for one in file_ids]
    return (await house.library.stores.create(NewVectorStore(files=new))).id


async def hits_in(house: House, store_id: str) -> list[str]:
    """The ids of every chunk that the index holds of the store, each as often as it is there."""
    return [chunk.id for chunk in await chunks_in(house, store_id)]


async def parents_in(house: House, store_id: str) -> set[tuple[int, int]]:
    return {(one.parent_start, one.parent_stop) for one in await chunks_in(house, store_id)}


async def chunks_in(house: House, store_id: str) -> list[Chunk]:
    [vector] = await FakeEmbedder().embed(["tenant"])
    query = StoreQuery(
        terms="tenant",
        vector=vector,
        document_ids=None,
        collection=store_id,
        num_candidates=9999,
    )
    return [hit.chunk for hit in (await house.store.search(query)).vector]


async def test_a_placement_waits_until_its_file_was_read(shaky: House) -> None:
    record = await shaky.add(LEASE.encode())
    store_id = await in_store(shaky, record.id)
    first = await shaky.queue.lease()
    assert first is not None
    assert first.kind is JobKind.INGEST
    assert await shaky.queue.lease() is None
    await shaky.queue.release(first)
    await shaky.settle()
    file = await shaky.library.stores.get_file(store_id, record.id)
    assert (file.status, file.stage, file.attempts) == (StoreFileStatus.COMPLETED, "done", 1)
    assert file.num_chunks == len(await hits_in(shaky, store_id)) > 0


async def test_the_chunks_are_of_the_size_asked_for_and_the_librarys_stay(shaky: House) -> None:
    record = await shaky.add(LEASE.encode())
    wide = await in_store(shaky, record.id)
    small = Chunking(max_tokens=100, overlap_tokens=20)
    narrow = await in_store(shaky, record.id, chunking=small)
    await shaky.settle()
    for store_id, longest in ((wide, 800), (narrow, 100)):
        parents = await parents_in(shaky, store_id)
        sizes = {len(LEASE[start:stop].split()) for start, stop in parents}
        assert longest // 2 < max(sizes) <= longest
    assert len(await parents_in(shaky, narrow)) > len(await parents_in(shaky, wide))
    assert (await shaky.library.get(record.id)).status is FileStatus.PROCESSED
    library_chunks = await hits_in(shaky, "")
    assert len(library_chunks) == (await shaky.library.get(record.id)).num_chunks


async def test_a_second_run_of_the_same_job_writes_nothing(
    shaky: House, troubled: TroubledStore
) -> None:
    record = await shaky.add(LEASE.encode())
    store_id = await in_store(shaky, record.id)
    await shaky.settle()
    num_writes = troubled.num_writes
    for _ in range(3):
        await shaky.database.run(lambda c: insert_job(c, record.id, JobKind.PLACE, 0.0, store_id))
    await shaky.library.stores.add_file(store_id, NewStoreFile(file_id=record.id))
    await shaky.settle()
    assert troubled.num_writes == num_writes
    file = await shaky.library.stores.get_file(store_id, record.id)
    assert file.status is StoreFileStatus.COMPLETED


async def test_changed_attributes_make_a_new_generation_without_embedding(shaky: House) -> None:
    embedder = CountingEmbedder()
    rooms = replace(shaky.rooms, embedder=embedder)
    pipeline = Pipeline(rooms, PipelineConfig(chunks=SMALL_CHUNKS), clock=lambda: 0.0)
    handler = handler_of(rooms, pipeline, shaky.placements)
    record = await shaky.add(LEASE.encode())
    store_id = await in_store(shaky, record.id)
    await run_all(shaky, handler)
    before, num_texts = await hits_in(shaky, store_id), embedder.num_texts
    await shaky.library.stores.update_file(store_id, record.id, {"year": 1911})
    waiting = await shaky.library.stores.get_file(store_id, record.id)
    assert waiting.status is StoreFileStatus.IN_PROGRESS
    await run_all(shaky, handler)
    after = await hits_in(shaky, store_id)
    assert len(after) == len(before)
    assert not set(after) & set(before)
    other = await in_store(shaky, record.id)
    await run_all(shaky, handler)
    assert len(await hits_in(shaky, other)) == len(before)
    assert embedder.num_texts == num_texts


async def run_all(house: House, handler: JobHandler) -> None:
    while (job := await house.queue.lease()) is not None:
        await handler.run(job)
        await house.queue.complete(job)


async def test_a_file_is_not_completed_before_its_chunks_are_counted(
    shaky: House, troubled: TroubledStore
) -> None:
    record = await shaky.add(LEASE.encode())
    await shaky.settle()
    store_id = await in_store(shaky, record.id)
    troubled.loses = True
    job = await shaky.queue.lease()
    assert job is not None
    handler = handler_of(shaky.rooms, shaky.pipeline, shaky.placements)
    with pytest.raises(TransientError, match="the index holds 0 of"):
        await handler.run(job)
    file = await shaky.library.stores.get_file(store_id, record.id)
    assert (file.status, file.stage) == (StoreFileStatus.IN_PROGRESS, "checking")


async def test_trouble_without_end_fails_with_a_cause_and_the_sweep_clears_what_is_left(
    shaky: House, troubled: TroubledStore
) -> None:
    record = await shaky.add(LEASE.encode())
    await shaky.settle()
    store_id = await in_store(shaky, record.id)
    troubled.num_failures = 99
    await shaky.settle()
    file = await shaky.library.stores.get_file(store_id, record.id)
    assert file.status is StoreFileStatus.FAILED
    assert file.failure is FailureCode.SERVER_ERROR
    assert file.cause is not None
    assert file.cause.startswith("Gave up after 3 attempts: the index does not answer")
    assert (await shaky.queue.depth())[JobState.DEAD] == 1
    troubled.num_failures = 0
    assert await shaky.queue.revive(float("inf")) == 1
    await shaky.settle()
    assert await hits_in(shaky, store_id) == []
    assert (await shaky.queue.depth())[JobState.DEAD] == 0
    again = await shaky.library.stores.get_file(store_id, record.id)
    assert (again.status, again.cause) == (StoreFileStatus.FAILED, file.cause)


async def test_a_cancelled_batch_leaves_nothing_whenever_it_was_cancelled(
    shaky: House, troubled: TroubledStore
) -> None:
    done, running, waiting = [await shaky.add(f"{LEASE} {n}".encode()) for n in range(3)]
    await shaky.settle()
    store_id = await in_store(shaky, done.id)
    await shaky.settle()
    troubled.may_write.clear()
    troubled.writing.clear()
    new = [NewStoreFile(file_id=one.id) for one in (running, waiting)]
    batch = await shaky.library.stores.add_batch(store_id, new)
    async with asyncio.TaskGroup() as group:
        working = group.create_task(shaky.worker.run())
        await troubled.writing.wait()
        batch = await shaky.library.stores.cancel_batch(store_id, batch.id)
        troubled.may_write.set()
        await asyncio.sleep(0.3)
        shaky.worker.stop()
        await working
    await shaky.settle()
    assert (batch.status, batch.counts.cancelled) == (StoreFileStatus.CANCELLED, 2)
    page = await shaky.library.stores.list_files(store_id, PageRequest(ascending=True))
    assert [file.status.value for file in page.items] == ["completed", "cancelled", "cancelled"]
    left = await hits_in(shaky, store_id)
    assert len(left) == page.items[0].num_chunks
    assert await shaky.library.stores._ledger.scope(store_id) is None


async def test_a_deleted_file_leaves_no_chunk_and_no_vector(shaky: House) -> None:
    record = await shaky.add(LEASE.encode())
    store_ids = [await in_store(shaky, record.id) for _ in range(2)]
    await shaky.settle()
    await shaky.library.delete(record.id)
    await shaky.settle()
    for store_id in store_ids:
        assert await hits_in(shaky, store_id) == []
    assert [blob async for blob in shaky.blobs.list(vectors_prefix(record.id))] == []
    assert await shaky.ledger.is_purged(record.id)
    assert (await shaky.queue.depth())[JobState.QUEUED] == 0


class StubbornStore(TroubledStore):
    """Says that it deleted, and did not."""

    async def delete(
        self, document_id: str, *, collection: str = "", keep_generation: str | None = None
    ) -> None:
        return None


async def test_a_removal_is_not_over_while_the_index_still_holds_chunks(tmp_path: Path) -> None:
    store = StubbornStore()
    async with open_house(tmp_path, store=store, sandbox=PlainSandbox()) as house:
        record = await house.add(LEASE.encode())
        store_id = await in_store(house, record.id)
        await house.settle()
        await house.library.delete(record.id)
        for work in (
            house.pipeline.delete(record.id),
            handler_of(house.rooms, house.pipeline, house.placements).run(
                Job(
                    id="job-1",
                    kind=JobKind.PLACE,
                    file_id=record.id,
                    attempts=1,
                    owner="a",
                    collection=store_id,
                )
            ),
        ):
            with pytest.raises(TransientError, match="still holds"):
                await work
        assert not await house.ledger.is_purged(record.id)
        assert await house.placements.get(store_id, record.id) is not None
