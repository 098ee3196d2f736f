"""A file's way in and out, done once, twice, in the wrong order, or against a deletion."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from ingest.api import FileMissing, FileStatus, TransientError
from ingest.blobs import BlobMissing
from ingest.jobs import JobKind, JobState
from ingest.pipeline import Pipeline, PipelineConfig, generation_of
from retrieval.api import (
    Candidates,
    EmbeddedChunk,
    SearchRequest,
    SearchUnavailable,
    Store,
    StoreQuery,
)
from retrieval.embedder import FakeEmbedder
from retrieval.stores.memory import MemoryStore
from tests.ingest.house import SMALL_CHUNKS, House, eventually, open_house

LEASE = "\n\n".join(f"Clause {n}. The tenant of flat {n} pays {n * 7} euros." for n in range(60))


class TroubledStore:
    """A store that can be told to fail, to lose writes, or to wait in the middle of one."""

    def __init__(self) -> None:
        self.inner = MemoryStore()
        self.num_failures = 0
        self.loses = False
        self.writing = asyncio.Event()
        self.may_write = asyncio.Event()
        self.may_write.set()
        self.num_writes = 0

    async def write(self, chunks: Sequence[EmbeddedChunk]) -> None:
        self.writing.set()
        await self.may_write.wait()
        self._fail()
        self.num_writes += 1
        if not self.loses:
            await self.inner.write(chunks)

    async def search(self, query: StoreQuery) -> Candidates:
        return await self.inner.search(query)

    async def delete(
        self, document_id: str, *, collection: str = "", keep_generation: str | None = None
    ) -> None:
        self._fail()
        await self.inner.delete(document_id, collection=collection, keep_generation=keep_generation)

    async def count(self, document_id: str, generation: str, *, collection: str = "") -> int:
        self._fail()
        return await self.inner.count(document_id, generation, collection=collection)

    async def aclose(self) -> None:
        await self.inner.aclose()

    def _fail(self) -> None:
        if self.num_failures > 0:
            self.num_failures -= 1
            raise SearchUnavailable("the disk is on fire")


@pytest.fixture
def troubled() -> TroubledStore:
    return TroubledStore()


@pytest.fixture
async def shaky(tmp_path: Path, troubled: TroubledStore) -> AsyncIterator[House]:
    async with open_house(tmp_path, store=troubled) as house:
        yield house


async def num_hits(store: Store, file_id: str) -> int:
    [vector] = await FakeEmbedder().embed(["tenant"])
    query = StoreQuery(terms="tenant", vector=vector, document_ids=[file_id], num_candidates=999)
    found = await store.search(query)
    return len({hit.chunk.id for hit in (*found.lexical, *found.vector)})


async def test_a_file_goes_from_uploaded_to_processed(house: House) -> None:
    record = await house.add(LEASE.encode())
    assert record.status is FileStatus.UPLOADED
    await house.settle()
    record = await house.library.get(record.id)
    assert (record.status, record.cause, record.notes) == (FileStatus.PROCESSED, None, ())
    assert record.num_chars == len(LEASE)
    assert record.num_chunks == await num_hits(house.store, record.id)


async def test_a_second_run_of_the_same_job_writes_nothing(
    shaky: House, troubled: TroubledStore
) -> None:
    record = await shaky.add(LEASE.encode())
    await shaky.settle()
    num_writes = troubled.num_writes
    for _ in range(3):
        await shaky.queue.enqueue(record.id, JobKind.INGEST)
    await shaky.settle()
    assert troubled.num_writes == num_writes
    assert (await shaky.library.get(record.id)).status is FileStatus.PROCESSED


async def test_two_runs_at_the_same_time_leave_each_chunk_once(house: House) -> None:
    record = await house.add(LEASE.encode())
    await asyncio.gather(*(house.pipeline.ingest(record.id) for _ in range(4)))
    record = await house.library.get(record.id)
    assert record.status is FileStatus.PROCESSED
    assert record.num_chunks == await num_hits(house.store, record.id)


async def test_a_new_embedder_replaces_the_generation(house: House) -> None:
    record = await house.add(LEASE.encode())
    await house.settle()
    before = (await house.ledger.get(record.id)).generation
    rooms = replace(house.rooms, embedder=FakeEmbedder(identity="other@2"))
    newer = Pipeline(rooms, PipelineConfig(chunks=SMALL_CHUNKS), clock=lambda: 0.0)
    await newer.ingest(record.id)
    after = (await house.ledger.get(record.id)).generation
    assert before == generation_of(record.digest, "fake@1")
    assert after == generation_of(record.digest, "other@2")
    assert before is not None
    assert await house.store.count(record.id, before) == 0
    assert (await house.library.get(record.id)).num_chunks == await num_hits(house.store, record.id)


@pytest.mark.parametrize(
    ("raw", "filename", "cause"),
    [
        (b"", "empty.txt", "The file is empty (0 bytes)."),
        (b" \n\t\n", "blank.txt", "The file holds nothing but white space."),
        (bytes(range(256)), "x.bin", "The file is binary data of an unknown type"),
        (b"%PDF-1.7 and then nothing", "x.pdf", "The file says that it is a PDF, but it is"),
        ("naïve".encode() * 9 + b"\xff", "x.txt", "The text is UTF-8 but broken at byte 54"),
    ],
)
async def test_a_bad_file_gets_its_cause_and_hurts_no_other(
    house: House, raw: bytes, filename: str, cause: str
) -> None:
    before = await house.add(LEASE.encode())
    bad = await house.add(raw, filename)
    after = await house.add(LEASE.encode() + b"!")
    await house.settle()
    record = await house.library.get(bad.id)
    assert record.status is FileStatus.ERROR
    assert record.cause is not None
    assert record.cause.startswith(cause)
    assert record.num_chunks is None
    for good in (before, after):
        assert (await house.library.get(good.id)).status is FileStatus.PROCESSED
    assert (await house.queue.depth())[JobState.QUEUED] == 0


async def test_trouble_with_the_index_is_retried(shaky: House, troubled: TroubledStore) -> None:
    record = await shaky.add(LEASE.encode())
    troubled.num_failures = 2
    await shaky.settle()
    assert (await shaky.library.get(record.id)).status is FileStatus.PROCESSED


async def test_trouble_without_end_becomes_a_cause_and_a_dead_letter(
    shaky: House, troubled: TroubledStore
) -> None:
    record = await shaky.add(LEASE.encode())
    troubled.num_failures = 99
    await shaky.settle()
    record = await shaky.library.get(record.id)
    assert record.status is FileStatus.ERROR
    assert record.cause is not None
    assert record.cause.startswith("Gave up after 3 attempts: the index does not answer")
    assert (await shaky.queue.depth())[JobState.DEAD] == 1


async def test_a_file_is_not_processed_before_its_chunks_are_counted(
    shaky: House, troubled: TroubledStore
) -> None:
    record = await shaky.add(LEASE.encode())
    troubled.loses = True
    with pytest.raises(TransientError, match="the index holds 0 of"):
        await shaky.pipeline.ingest(record.id)
    assert (await shaky.library.get(record.id)).status is FileStatus.IN_PROGRESS


async def test_a_deleted_file_leaves_nothing(house: House) -> None:
    record = await house.add(LEASE.encode())
    await house.settle()
    await house.library.delete(record.id)
    await house.settle()
    assert await num_hits(house.store, record.id) == 0
    with pytest.raises(BlobMissing):
        await house.texts.get(record.id)
    with pytest.raises(BlobMissing):
        await house.blobs.get_whole(f"uploads/{record.id}")
    assert await house.ledger.is_purged(record.id)


async def test_a_deleted_file_is_not_found_even_before_its_chunks_are_gone(house: House) -> None:
    record = await house.add(LEASE.encode())
    await house.settle()
    request = SearchRequest(query="tenant flat 9", document_ids=[record.id])
    assert (await house.library.search(request)).passages
    await house.library.delete(record.id)
    assert await num_hits(house.store, record.id) > 0
    assert not (await house.library.search(request)).passages


async def test_a_delete_job_that_comes_first_or_twice_changes_nothing(house: House) -> None:
    record = await house.add(LEASE.encode())
    await house.pipeline.delete(record.id)
    await house.pipeline.ingest(record.id)
    await house.pipeline.delete(record.id)
    assert (await house.library.get(record.id)).status is FileStatus.PROCESSED
    await house.library.delete(record.id)
    for _ in range(2):
        await house.pipeline.delete(record.id)
    await house.pipeline.ingest(record.id)
    assert await num_hits(house.store, record.id) == 0


async def test_a_delete_during_the_write_wins(shaky: House, troubled: TroubledStore) -> None:
    record = await shaky.add(LEASE.encode())
    troubled.may_write.clear()
    async with asyncio.TaskGroup() as group:
        working = group.create_task(shaky.worker.run())
        await troubled.writing.wait()
        await shaky.library.delete(record.id)
        with pytest.raises(FileMissing):
            await shaky.library.get(record.id)
        troubled.may_write.set()
        await eventually(lambda: shaky.ledger.is_purged(record.id))
        shaky.worker.stop()
        await working
    assert await num_hits(troubled, record.id) == 0
    with pytest.raises(BlobMissing):
        await shaky.texts.get(record.id)


async def test_a_run_that_finishes_after_the_delete_takes_back_what_it_wrote(
    shaky: House, troubled: TroubledStore
) -> None:
    record = await shaky.add(LEASE.encode())
    troubled.may_write.clear()
    async with asyncio.TaskGroup() as group:
        group.create_task(shaky.pipeline.ingest(record.id))
        await troubled.writing.wait()
        await shaky.library.delete(record.id)
        troubled.may_write.set()
    assert await num_hits(troubled, record.id) == 0
    with pytest.raises(BlobMissing):
        await shaky.texts.get(record.id)


async def test_a_blob_that_rotted_is_said(house: House, tmp_path: Path) -> None:
    record = await house.add(LEASE.encode())
    await house.blobs.put(f"uploads/{record.id}", b"something else")
    await house.settle()
    record = await house.library.get(record.id)
    assert record.cause == "The stored bytes are not those that were uploaded."
