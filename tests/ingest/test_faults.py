"""One call in twenty to the index and to the blobs fails or times out: nothing is lost, nothing
is there twice, nothing is left over."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from random import Random

import pytest
from obstore.store import LocalStore

from ingest.api import FileStatus, TransientError
from ingest.blobs import BlobStore, Stored
from ingest.jobs import JobState
from ingest.stores_api import NewStoreFile, NewVectorStore, PageRequest, StoreFileStatus
from ingest.sweep import SweepConfig, Sweeper
from retrieval.api import EmbeddedChunk, SearchUnavailable
from retrieval.stores.memory import MemoryStore
from tests.ingest.house import House, PlainSandbox, open_house, pieces

NUM_FILES = 40
FAULT_SHARE = 0.05
TEXT = "\n\n".join(f"Clause {n}. The tenant of flat {n} pays {n * 7} euros." for n in range(12))


class Dice:
    """Decides, always in the same order, which calls fail; none when `share` is 0."""

    def __init__(self, seed: int) -> None:
        self._rng = Random(seed)
        self.share = FAULT_SHARE
        self.num_faults = 0

    async def roll(self, error: Exception) -> None:
        if self._rng.random() < self.share:
            self.num_faults += 1
            if self._rng.random() < 0.3:
                await asyncio.sleep(0.01)
            raise error


class ShakyStore(MemoryStore):
    """Fails before the work, or after it: then it is done although nobody was told."""

    def __init__(self, dice: Dice) -> None:
        super().__init__()
        self._dice = dice

    async def write(self, chunks: Sequence[EmbeddedChunk]) -> None:
        await self._roll()
        await super().write(chunks[: len(chunks) // 2])
        await self._roll()
        await super().write(chunks)
        await self._roll()

    async def delete(
        self, document_id: str, *, collection: str = "", keep_generation: str | None = None
    ) -> None:
        await self._roll()
        await super().delete(document_id, collection=collection, keep_generation=keep_generation)
        await self._roll()

    async def count(self, document_id: str, generation: str, *, collection: str = "") -> int:
        await self._roll()
        return await super().count(document_id, generation, collection=collection)

    async def _roll(self) -> None:
        await self._dice.roll(SearchUnavailable("the index timed out"))

    def shelves(self) -> dict[tuple[str, str], int]:
        """How many chunks the index holds of each document in each collection."""
        found: dict[tuple[str, str], int] = {}
        for row in self._rows.values():
            shelf = (row.chunk.collection, row.chunk.document_id)
            found[shelf] = found.get(shelf, 0) + 1
        return found


class ShakyBlobs(BlobStore):
    def __init__(self, folder: Path, dice: Dice) -> None:
        super().__init__(LocalStore(folder, mkdir=True))
        self._dice = dice

    async def put_stream(self, key: str, body: AsyncIterator[bytes], *, limit_bytes: int) -> Stored:
        await self._roll()
        stored = await super().put_stream(key, body, limit_bytes=limit_bytes)
        await self._roll()
        return stored

    async def put(self, key: str, body: bytes) -> None:
        await super().put(key, body)
        await self._roll()

    async def get(self, key: str) -> AsyncIterator[bytes]:
        await self._roll()
        async for piece in super().get(key):
            yield piece

    async def get_whole(self, key: str) -> bytes:
        await self._roll()
        return await super().get_whole(key)

    async def delete(self, key: str) -> None:
        await self._roll()
        await super().delete(key)

    async def _roll(self) -> None:
        await self._dice.roll(TransientError("the blob store does not answer"))


async def added(house: House, number: int) -> str | None:
    """None: the caller was told that it failed."""
    try:
        record = await house.library.add(
            filename=f"{number}.txt",
            purpose="user_data",
            body=pieces(f"{TEXT} {number}".encode()),
        )
    except TransientError:
        return None
    return record.id


@pytest.mark.parametrize("seed", [1])
@pytest.mark.timeout(60)
async def test_every_file_ends_well_or_with_a_cause(tmp_path: Path, seed: int) -> None:
    dice = Dice(seed)
    store = ShakyStore(dice)
    blobs = ShakyBlobs(tmp_path / "blobs", dice)
    async with open_house(tmp_path, store=store, blobs=blobs, sandbox=PlainSandbox()) as house:
        ids = [one for n in range(NUM_FILES) if (one := await added(house, n)) is not None]
        assert len(ids) < NUM_FILES
        new = [NewStoreFile(file_id=one) for one in ids]
        store_id = (await house.library.stores.create(NewVectorStore(files=new))).id
        await house.settle()
        for one in ids[:10]:
            await house.library.stores.update_file(store_id, one, {"late": True})
        for one in ids[10:20]:
            await house.library.stores.remove_file(store_id, one)
        for one in ids[20:30]:
            await house.library.delete(one)
        await house.settle()
        assert dice.num_faults > 20
        await check_told(house, store_id, ids[:20] + ids[30:])
        dice.share = 0.0
        await house.queue.revive(float("inf"))
        await house.settle()
        await check_left(house, store, store_id, ids[:20] + ids[30:])


async def check_told(house: House, store_id: str, living: Sequence[str]) -> None:
    """Nothing is in between, and what failed says why."""
    for one in living:
        record = await house.library.get(one)
        assert record.status in (FileStatus.PROCESSED, FileStatus.ERROR)
        assert (record.cause is None) is (record.status is FileStatus.PROCESSED)
    page = await house.library.stores.list_files(store_id, PageRequest(limit=100))
    for file in page.items:
        assert file.status in (StoreFileStatus.COMPLETED, StoreFileStatus.FAILED)
        assert (file.cause is None) is (file.status is StoreFileStatus.COMPLETED)


async def check_left(house: House, store: ShakyStore, store_id: str, living: Sequence[str]) -> None:
    """The index and the blobs hold what the ledger says, and nothing else."""
    depth = await house.queue.depth()
    assert (depth[JobState.QUEUED], depth[JobState.LEASED], depth[JobState.DEAD]) == (0, 0, 0)
    records = [await house.library.get(one) for one in living]
    expected = {("", one.id): one.num_chunks for one in records if one.num_chunks}
    page = await house.library.stores.list_files(store_id, PageRequest(limit=100))
    expected |= {(store_id, one.file_id): one.num_chunks for one in page.items if one.num_chunks}
    assert store.shelves() == expected
    texts = {f"text/{one.id}" for one in records if one.status is FileStatus.PROCESSED}
    assert {blob.key async for blob in house.blobs.list("text/")} == texts
    uploads = {blob.key async for blob in house.blobs.list("uploads/")}
    assert uploads >= {f"uploads/{one.id}" for one in records}
    later = max([blob.written_at async for blob in house.blobs.list("uploads/")]) + 2 * 86_400
    await Sweeper(house.sweep_rooms, SweepConfig(), clock=lambda: later).sweep()
    uploads = {blob.key async for blob in house.blobs.list("uploads/")}
    assert uploads == {f"uploads/{one.id}" for one in records}
