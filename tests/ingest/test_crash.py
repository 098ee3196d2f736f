"""kill -9 at every stage boundary, over a real index: no lost file, no chunk twice, no orphan."""

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from ingest.api import FileStatus
from ingest.stores_api import NewStoreFile, NewVectorStore, StoreFileStatus
from retrieval.api import StoreQuery
from retrieval.embedder import FakeEmbedder
from retrieval.stores.lance import LanceStore
from tests.ingest.crashing_worker import CLEAR_STAGES, PLACE_STAGES, STAGES
from tests.ingest.house import QUICK, House, open_house

TEXT = "\n\n".join(f"Clause {n}. The tenant of flat {n} pays {n * 7} euros." for n in range(30))


async def run_until_it_dies(data_dir: Path, stage: str) -> None:
    worker = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.ingest.crashing_worker", str(data_dir), stage
    )
    assert await worker.wait() == -signal.SIGKILL


async def found_ids(store: LanceStore, file_id: str, collection: str = "") -> list[str]:
    [vector] = await FakeEmbedder().embed(["tenant"])
    found = await store.search(
        StoreQuery(
            terms="tenant",
            vector=vector,
            document_ids=[file_id],
            collection=collection,
            num_candidates=500,
        )
    )
    return [hit.chunk.id for hit in found.vector]


async def restarted(data_dir: Path, file_id: str, house: House) -> None:
    await asyncio.sleep(QUICK.lease_s + 0.05)
    await house.settle()


@pytest.mark.ranks
@pytest.mark.timeout(60)
@pytest.mark.parametrize("stage", [stage for stage in STAGES if not stage.startswith("delet")])
async def test_a_killed_ingest_is_finished_by_the_next_worker(tmp_path: Path, stage: str) -> None:
    async with open_house(tmp_path) as house:
        record = await house.add(TEXT.encode())
    await run_until_it_dies(tmp_path, stage)
    store = await LanceStore.open(tmp_path / "index", FakeEmbedder())
    async with open_house(tmp_path, store=store) as house:
        await restarted(tmp_path, record.id, house)
        record = await house.library.get(record.id)
        assert record.status is FileStatus.PROCESSED
        ids = await found_ids(store, record.id)
        assert len(ids) == len(set(ids)) == record.num_chunks
        assert (await house.library.text(record.id)).text == TEXT
    await store.aclose()


@pytest.mark.ranks
@pytest.mark.timeout(60)
@pytest.mark.parametrize("stage", [stage for stage in STAGES if stage.startswith("delet")])
async def test_a_killed_removal_is_finished_by_the_next_worker(tmp_path: Path, stage: str) -> None:
    store = await LanceStore.open(tmp_path / "index", FakeEmbedder())
    async with open_house(tmp_path, store=store) as house:
        record = await house.add(TEXT.encode())
        await house.settle()
        await house.library.delete(record.id)
    await run_until_it_dies(tmp_path, stage)
    async with open_house(tmp_path, store=store) as house:
        await restarted(tmp_path, record.id, house)
        assert await found_ids(store, record.id) == []
        assert await house.ledger.is_purged(record.id)
    await store.aclose()
    left = [path for path in blobs_in(tmp_path) if path.is_file()]
    assert left == []


@pytest.mark.ranks
@pytest.mark.timeout(60)
@pytest.mark.parametrize("stage", [*PLACE_STAGES, *CLEAR_STAGES])
async def test_a_killed_placement_is_finished_by_the_next_worker(
    tmp_path: Path, stage: str
) -> None:
    store = await LanceStore.open(tmp_path / "index", FakeEmbedder())
    async with open_house(tmp_path, store=store) as house:
        record = await house.add(TEXT.encode())
        await house.settle()
        new = NewVectorStore(files=[NewStoreFile(file_id=record.id)])
        store_id = (await house.library.stores.create(new)).id
        if stage in CLEAR_STAGES:
            await house.settle()
            await house.library.stores.remove_file(store_id, record.id)
    await run_until_it_dies(tmp_path, stage)
    async with open_house(tmp_path, store=store) as house:
        await restarted(tmp_path, record.id, house)
        ids = await found_ids(store, record.id, store_id)
        if stage in CLEAR_STAGES:
            assert ids == []
            assert await house.placements.get(store_id, record.id) is None
        else:
            file = await house.library.stores.get_file(store_id, record.id)
            assert file.status is StoreFileStatus.COMPLETED
            assert len(ids) == len(set(ids)) == file.num_chunks > 0
        assert (await house.library.get(record.id)).status is FileStatus.PROCESSED
    await store.aclose()


def blobs_in(data_dir: Path) -> list[Path]:
    return list((data_dir / "blobs").rglob("*"))
