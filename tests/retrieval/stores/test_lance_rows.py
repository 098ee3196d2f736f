"""The copy of a table's rows: never older than the table, whatever is rewritten, moved or gone."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from retrieval.api import Attribute, Candidates
from retrieval.config import StoreConfig
from retrieval.stores.lance import LanceStore
from tests.retrieval.chunks import chunk, embedded
from tests.retrieval.stores.test_lance import EMBEDDER, NUM_DOCUMENTS, ask

COPIED = StoreConfig()
NEVER_COPIED = StoreConfig(copied_bytes=0)
PARTLY_COPIED = StoreConfig(optimize_commits=1_000, optimize_share=1.0)
NUM_CHUNKS = 40


async def write(
    store: LanceStore, *, first: int = 0, attributes: Mapping[str, Attribute] | None = None
) -> None:
    chunks = [
        chunk(
            f"codeword{number} of the lease", start=number * 50, attributes=dict(attributes or {})
        )
        for number in range(first, NUM_CHUNKS)
    ]
    await store.write(await embedded(EMBEDDER, *chunks))


def attributes_of(found: Candidates) -> list[Mapping[str, Attribute]]:
    return [hit.chunk.attributes for hit in (*found.lexical, *found.vector)]


@pytest.mark.parametrize("config", [COPIED, NEVER_COPIED, PARTLY_COPIED])
async def test_a_rewritten_chunk_is_found_as_it_is_now(tmp_path: Path, config: StoreConfig) -> None:
    store = await LanceStore.open(tmp_path, EMBEDDER, config)
    await write(store, attributes={"draft": True})
    for first in (0, NUM_CHUNKS - 3):
        before = await ask(store, "lease", "doc")
        assert len(before.lexical) == len(before.vector) == NUM_CHUNKS
        await write(store, first=first, attributes={"draft": False, "from": float(first)})
        found = await ask(store, "lease", "doc")
        assert len(found.lexical) == len(found.vector) == NUM_CHUNKS
        fresh = [one for one in attributes_of(found) if one.get("from") == float(first)]
        assert len(fresh) == 2 * (NUM_CHUNKS - first)
    await store.aclose()


async def test_rows_that_compaction_moved_are_found_with_their_own_texts(tmp_path: Path) -> None:
    store = await LanceStore.open(tmp_path, EMBEDDER)
    await write(store)
    before = await ask(store, "codeword7 lease", "doc")
    await write(store, first=NUM_CHUNKS - 3)
    await store.settle()
    await store._table.optimize()
    after = await ask(store, "codeword7 lease", "doc")
    assert after.lexical[0].chunk.text == "codeword7 of the lease"
    assert after.vector == before.vector
    await store.aclose()


async def test_a_table_larger_than_the_limit_is_not_copied(tmp_path: Path) -> None:
    store = await LanceStore.open(tmp_path, EMBEDDER, NEVER_COPIED)
    await write(store)
    found = await ask(store, "lease", "doc")
    again = await LanceStore.open(tmp_path, EMBEDDER, COPIED)
    assert (found.lexical, found.vector) == (
        (copied := await ask(again, "lease", "doc")).lexical,
        copied.vector,
    )
    assert store._rows._copy.rows is None
    assert again._rows._copy.rows is not None
    await store.aclose()
    await again.aclose()


async def test_searches_beside_writes_and_compaction_find_whole_documents(tmp_path: Path) -> None:
    store = await LanceStore.open(tmp_path, EMBEDDER, StoreConfig(optimize_commits=1))
    await write(store)

    async def rewrite() -> None:
        for number in range(NUM_DOCUMENTS):
            await write(store, attributes={"round": float(number)})

    async with asyncio.TaskGroup() as group:
        writing = group.create_task(rewrite())
        while not writing.done():
            found = await ask(store, "lease", "doc")
            assert len(found.lexical) == len(found.vector) == NUM_CHUNKS
    await store.aclose()
