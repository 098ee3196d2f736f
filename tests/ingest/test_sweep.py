"""What time undoes, and what a crash left behind."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from obstore.store import MemoryStore
from sqlalchemy import Connection

from ingest.api import FileMissing, TransientError
from ingest.blobs import BlobStore
from ingest.stores_api import NewStoreFile, NewVectorStore, StoreStatus
from ingest.sweep import SweepConfig, Sweeper
from ingest.uploads_api import NewUpload, UploadMissing, UploadStatus
from tests.contracts.library_benches import Clock
from tests.ingest.house import House, PlainSandbox, eventually, open_house, pieces
from tests.ingest.test_placing import hits_in

DAY_S = 86_400.0
TEXT = b"The keeper feeds the gulls with herring."


@dataclass(frozen=True, slots=True)
class Aging:
    house: House
    clock: Clock
    folder: Path

    def blobs(self) -> list[str]:
        root = self.folder / "blobs"
        found = (path for path in root.rglob("*") if path.is_file())
        return sorted(path.relative_to(root).as_posix() for path in found)


@pytest.fixture
async def aging(tmp_path: Path) -> AsyncIterator[Aging]:
    clock = Clock()
    async with open_house(tmp_path, clock=clock, sandbox=PlainSandbox()) as house:
        yield Aging(house, clock, tmp_path)


async def test_an_expired_file_is_missing_at_once_and_leaves_nothing(aging: Aging) -> None:
    house = aging.house
    record = await house.library.add(
        filename="a.txt", purpose="user_data", body=pieces(TEXT), expires_after_s=3600
    )
    store = await house.library.stores.create(
        NewVectorStore(files=[NewStoreFile(file_id=record.id)])
    )
    await house.settle()
    aging.clock.now += 3601
    with pytest.raises(FileMissing):
        await house.library.get(record.id)
    assert (await house.sweeper.sweep()).expired_files == 1
    await house.settle()
    assert aging.blobs() == []
    assert await hits_in(house, store.id) == await hits_in(house, "") == []


async def test_an_expired_store_loses_its_chunks_and_keeps_its_name(aging: Aging) -> None:
    house = aging.house
    record = await house.add(TEXT)
    new = NewVectorStore(name="old", expires_after_days=1, files=[NewStoreFile(file_id=record.id)])
    store = await house.library.stores.create(new)
    await house.settle()
    aging.clock.now += 2 * DAY_S
    assert (await house.sweeper.sweep()).expired_stores == 1
    await house.settle()
    assert await hits_in(house, store.id) == []
    again = await house.library.stores.get(store.id)
    assert (again.name, again.status, again.counts.total) == ("old", StoreStatus.EXPIRED, 0)
    assert len(await hits_in(house, "")) == (await house.library.get(record.id)).num_chunks


async def test_parts_of_a_forgotten_upload_go_when_it_has_expired(aging: Aging) -> None:
    house = aging.house
    upload = await house.library.uploads.create(
        NewUpload(filename="a", purpose="user_data", mime_type="text/plain", num_bytes=40)
    )
    await house.library.uploads.add_part(upload.id, pieces(TEXT))
    await house.sweeper.sweep()
    assert len(aging.blobs()) == 1
    aging.clock.now += 3601
    assert (await house.sweeper.sweep()).dropped_parts == 1
    assert aging.blobs() == []
    assert (await house.library.uploads.get(upload.id)).status is UploadStatus.EXPIRED
    aging.clock.now += 8 * DAY_S
    await house.sweeper.sweep()
    with pytest.raises(UploadMissing):
        await house.library.uploads.get(upload.id)


async def test_blobs_without_a_row_are_dropped_when_they_are_old(aging: Aging) -> None:
    house = aging.house
    record = await house.add(TEXT)
    await house.library.stores.create(NewVectorStore(files=[NewStoreFile(file_id=record.id)]))
    await house.settle()
    mine = aging.blobs()
    for prefix in ("uploads/file-lost", "text/file-lost", "vectors/file-lost/ab", "parts/part_x"):
        await house.blobs.put(prefix, b"left by a crash")
    newest = max([blob.written_at async for blob in house.blobs.list("uploads/")])
    aging.clock.now = newest + DAY_S - 60
    assert (await house.sweeper.sweep()).orphan_blobs == 0
    aging.clock.now = newest + DAY_S + 60
    assert (await house.sweeper.sweep()).orphan_blobs == 4
    assert aging.blobs() == mine


async def test_what_a_killed_upload_left_on_disk_goes_when_it_is_old(aging: Aging) -> None:
    record = await aging.house.add(TEXT)
    blobs = aging.folder / "blobs"
    unfinished = blobs / "uploads" / "file-lost#1"
    unfinished.write_bytes(b"the first half")
    aging.clock.now = unfinished.stat().st_mtime + DAY_S - 60
    assert (await aging.house.sweeper.sweep()).orphan_blobs == 0
    aging.clock.now += 120
    assert (await aging.house.sweeper.sweep()).orphan_blobs == 1
    assert [path.name for path in (blobs / "uploads").iterdir()] == [record.id]


async def test_finished_jobs_and_tombstones_are_forgotten_after_a_time(aging: Aging) -> None:
    house = aging.house
    record, other = await house.add(TEXT), await house.add(TEXT + b"!")
    store = await house.library.stores.create(
        NewVectorStore(files=[NewStoreFile(file_id=record.id)])
    )
    await house.settle()
    await house.library.delete(record.id)
    await house.library.stores.delete(store.id)
    await house.settle()
    aging.clock.now += DAY_S / 2
    assert (await house.sweeper.sweep()).forgotten_rows == 0
    aging.clock.now += 10 * DAY_S
    await house.sweeper.sweep()
    await house.sweeper.sweep()
    tables = ("files", "jobs", "vector_stores", "vector_store_files")
    counts = {table: await house.database.run(partial(num_rows, table)) for table in tables}
    assert counts == {"files": 1, "jobs": 0, "vector_stores": 0, "vector_store_files": 0}
    assert (await house.library.get(other.id)).id == other.id


def num_rows(table: str, connection: Connection) -> int:
    return int(connection.exec_driver_sql(f"SELECT count(*) FROM {table}").scalar_one())


class AwayBlobs(BlobStore):
    """Does not answer the first deletion."""

    num_calls = 0

    async def delete(self, key: str) -> None:
        self.num_calls += 1
        if self.num_calls == 1:
            raise TransientError("the blob store does not answer")
        await super().delete(key)


async def test_a_sweep_that_breaks_off_is_tried_again(tmp_path: Path) -> None:
    clock, blobs = Clock(), AwayBlobs(MemoryStore())
    async with open_house(tmp_path, clock=clock, blobs=blobs, sandbox=PlainSandbox()) as house:
        upload = await house.library.uploads.create(
            NewUpload(filename="a", purpose="user_data", mime_type="text/plain", num_bytes=40)
        )
        await house.library.uploads.add_part(upload.id, pieces(TEXT))
        clock.now += 3601

        async def gone() -> bool:
            return [blob async for blob in blobs.list("parts/")] == []

        sweeper = Sweeper(house.sweep_rooms, SweepConfig(every_s=0.01), clock=clock)
        async with asyncio.TaskGroup() as group:
            sweeping = group.create_task(sweeper.run())
            await eventually(gone)
            sweeping.cancel()
        assert blobs.num_calls == 2
