"""What only a store on disk can get wrong: restarts, crashes, other embedders, other writers."""

import asyncio
import sys
from pathlib import Path

import pytest

from retrieval.analyzer import analyze_joined
from retrieval.api import Candidates, IndexMismatch, SearchUnavailable, StoreQuery
from retrieval.config import StoreConfig
from retrieval.embedder import FakeEmbedder
from retrieval.stores.lance import LanceStore, table_name
from tests.retrieval.chunks import chunk, embedded

EMBEDDER = FakeEmbedder()
BATCH = 20
NUM_DOCUMENTS = 12


async def ask(store: LanceStore, query: str, *document_ids: str) -> Candidates:
    [vector] = await EMBEDDER.embed([query])
    return await store.search(
        StoreQuery(terms=analyze_joined(query), vector=vector, document_ids=document_ids)
    )


async def write(store: LanceStore, document_id: str, num_chunks: int = BATCH) -> None:
    chunks = [
        chunk(f"codeword{number} in {document_id}", document_id=document_id, start=number * 50)
        for number in range(num_chunks)
    ]
    await store.write(await embedded(EMBEDDER, *chunks))


async def test_everything_is_there_after_a_restart(tmp_path: Path) -> None:
    store = await LanceStore.open(tmp_path, EMBEDDER)
    await write(store, "doc")
    before = await ask(store, "codeword7", "doc")
    await store.aclose()
    again = await LanceStore.open(tmp_path, EMBEDDER)
    assert await ask(again, "codeword7", "doc") == before
    await again.aclose()


@pytest.mark.parametrize("other", [FakeEmbedder(identity="other@2"), FakeEmbedder(dimension=8)])
async def test_another_embedder_is_refused(tmp_path: Path, other: FakeEmbedder) -> None:
    await (await LanceStore.open(tmp_path, EMBEDDER)).aclose()
    with pytest.raises(IndexMismatch) as refusal:
        await LanceStore.open(tmp_path, other)
    assert (refusal.value.found, refusal.value.expected) != ("", "")
    assert refusal.value.found != refusal.value.expected


async def test_vectors_of_another_dimension_are_refused(tmp_path: Path) -> None:
    store = await LanceStore.open(tmp_path, EMBEDDER)
    with pytest.raises(ValueError, match="64 numbers"):
        await store.write(await embedded(FakeEmbedder(dimension=8), chunk("words")))
    await store.aclose()


async def test_a_table_that_was_never_finished_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / f"{table_name(1)}.lance" / "data").mkdir(parents=True)
    store = await LanceStore.open(tmp_path, EMBEDDER)
    await write(store, "doc")
    assert await store.count("doc", "g1") == BATCH
    await store.aclose()


async def test_rows_without_a_text_index_get_one_at_the_first_search(tmp_path: Path) -> None:
    store = await LanceStore.open(tmp_path, EMBEDDER)
    await write(store, "doc")
    await store.settle()
    await store._table.drop_index("terms_text")
    await store.aclose()
    again = await LanceStore.open(tmp_path, EMBEDDER)
    assert (await ask(again, "codeword3", "doc")).lexical[0].chunk.text == "codeword3 in doc"
    await again.aclose()


async def test_a_large_index_searches_vectors_approximately(tmp_path: Path) -> None:
    store = await LanceStore.open(tmp_path, EMBEDDER, StoreConfig(ann_min_rows=300))
    await write(store, "doc", 300)
    await store.settle()
    names = {index.name for index in await store._table.list_indices()}
    assert "vector_ann" in names
    found = await ask(store, "codeword42 in doc", "doc")
    assert found.vector[0].chunk.text == "codeword42 in doc"
    assert found.vector[0].score == pytest.approx(1.0, abs=1e-4)
    await write(store, "late", 1)
    assert (await ask(store, "codeword0 in late", "late")).vector[0].score > 0.99
    await store.aclose()


async def test_vectors_kept_apart_are_searched_exactly_and_stay_few_parts(tmp_path: Path) -> None:
    config = StoreConfig(scan_index_min_rows=14, optimize_commits=1)
    store = await LanceStore.open(tmp_path, EMBEDDER, config)
    for number in range(NUM_DOCUMENTS):
        await write(store, f"doc{number}", 7)
        if number % 5 == 4:
            await store.delete(f"doc{number}")
    await store.settle()
    stats = await store._table.index_stats("vector_scan")
    assert stats is not None
    assert 1 <= (stats.num_indices or 0) <= 8
    texts = [
        f"codeword{n} in doc{number}"
        for number in range(NUM_DOCUMENTS)
        if number % 5 != 4
        for n in range(7)
    ]
    [wanted, *vectors] = await EMBEDDER.embed(["codeword3 in doc7", *texts])
    exact = sorted(
        (sum(a * b for a, b in zip(wanted, one, strict=True)) for one in vectors), reverse=True
    )
    documents = [f"doc{number}" for number in range(NUM_DOCUMENTS)]
    found = (await ask(store, "codeword3 in doc7", *documents)).vector
    assert [hit.score for hit in found] == pytest.approx(exact[: len(found)], abs=1e-5)
    assert len(found) == len(texts)
    await store.aclose()


async def test_concurrent_writes_and_searches_lose_nothing(tmp_path: Path) -> None:
    config = StoreConfig(optimize_commits=3)
    store = await LanceStore.open(tmp_path, EMBEDDER, config)
    async with asyncio.TaskGroup() as group:
        for number in range(10):
            group.create_task(write(store, f"doc{number}"))
            group.create_task(ask(store, "codeword1", "doc0"))
    counts = [await store.count(f"doc{number}", "g1") for number in range(10)]
    assert counts == [BATCH] * 10
    await store.aclose()


async def num_unfolded(store: LanceStore) -> int:
    stats = await store._table.index_stats("terms_text")
    assert stats is not None
    return int(stats.num_unindexed_rows)


async def test_a_write_is_found_before_the_indexes_hold_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await LanceStore.open(tmp_path, EMBEDDER, StoreConfig(optimize_share=0.0))
    await write(store, "doc")
    await store.settle()
    fold, may_fold = store._indexes.keep_fresh, asyncio.Event()

    async def fold_later() -> None:
        await may_fold.wait()
        await fold()

    monkeypatch.setattr(store._indexes, "keep_fresh", fold_later)
    await write(store, "late", 3)
    assert await store.count("late", "g1") == 3
    assert (await ask(store, "codeword2", "late")).lexical[0].chunk.text == "codeword2 in late"
    assert await num_unfolded(store) == 3
    may_fold.set()
    await store.settle()
    assert await num_unfolded(store) == 0
    await store.aclose()


async def test_a_folding_that_fails_is_logged_and_made_up_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = await LanceStore.open(tmp_path, EMBEDDER, StoreConfig(optimize_share=0.0))
    await write(store, "doc")
    await store.settle()

    async def fail() -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patched:
        patched.setattr(store._indexes, "keep_fresh", fail)
        await write(store, "late", 3)
        await store.settle()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert (await ask(store, "codeword2", "late")).lexical
    await write(store, "later", 3)
    await store.settle()
    assert await num_unfolded(store) == 0
    await store.aclose()


async def test_two_openings_of_one_folder_see_each_others_writes(tmp_path: Path) -> None:
    first = await LanceStore.open(tmp_path, EMBEDDER)
    second = await LanceStore.open(tmp_path, EMBEDDER)
    async with asyncio.TaskGroup() as group:
        for number in range(5):
            group.create_task(write(first, f"a{number}"))
            group.create_task(write(second, f"b{number}"))
    await first.delete("b0")
    assert [await second.count(f"a{number}", "g1") for number in range(5)] == [BATCH] * 5
    assert [await first.count(f"b{number}", "g1") for number in range(5)] == [0] + [BATCH] * 4
    assert (await ask(second, "codeword5", "a4")).lexical[0].chunk.document_id == "a4"
    await first.aclose()
    await second.aclose()


async def test_a_broken_folder_makes_search_unavailable(tmp_path: Path) -> None:
    store = await LanceStore.open(tmp_path, EMBEDDER)
    await write(store, "doc")
    await store.settle()
    break_files(tmp_path)
    with pytest.raises(SearchUnavailable):
        await ask(store, "codeword1", "doc")
    await store.aclose()


def break_files(folder: Path) -> None:
    for path in folder.glob("**/*.manifest"):
        path.write_bytes(b"broken")
    for path in folder.glob("**/data/*.lance"):
        path.unlink()


WRITER = """
import asyncio, sys
from pathlib import Path
from retrieval.config import StoreConfig
from retrieval.stores.lance import LanceStore
from tests.retrieval.stores.test_lance import EMBEDDER, write

async def main():
    config = StoreConfig(optimize_share=0.0, optimize_commits=2)
    store = await LanceStore.open(Path(sys.argv[1]), EMBEDDER, config)
    for number in range(1000):
        await write(store, f"doc{number}")
        print(number, flush=True)

asyncio.run(main())
"""


@pytest.mark.timeout(60)
@pytest.mark.parametrize("pause_s", [0.0, 0.004, 0.013, 0.03])
async def test_a_writer_killed_at_any_moment_leaves_whole_batches(
    tmp_path: Path, pause_s: float
) -> None:
    writer = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WRITER, str(tmp_path), stdout=asyncio.subprocess.PIPE
    )
    assert writer.stdout is not None
    num_written = 0
    while num_written < 3:
        num_written = int(await writer.stdout.readline()) + 1
    await asyncio.sleep(pause_s)
    writer.kill()
    num_written += len((await writer.stdout.read()).splitlines())
    await writer.wait()

    store = await LanceStore.open(tmp_path, EMBEDDER)
    counts = [await store.count(f"doc{number}", "g1") for number in range(num_written + 2)]
    assert counts[:num_written] == [BATCH] * num_written
    assert counts[num_written] in (0, BATCH)
    assert counts[num_written + 1] == 0
    await write(store, f"doc{num_written}")
    assert await store.count(f"doc{num_written}", "g1") == BATCH
    for number in (0, num_written):
        found = await ask(store, "codeword7", f"doc{number}")
        assert found.lexical[0].chunk.text == f"codeword7 in doc{number}"
    await store.aclose()
