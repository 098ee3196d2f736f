"""The embedded index is re-embedded into its next version, and an old layout is understood."""

import shutil
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import lancedb
import pytest

from retrieval.analyzer import analyze_joined
from retrieval.api import IndexMismatch, SearchUnavailable, StoreQuery
from retrieval.embedder import FakeEmbedder
from retrieval.migration import Migration
from retrieval.stores.lance import LanceStore, table_name, table_schema
from retrieval.wiring import migrate_index
from tests.retrieval.chunks import chunk, embedded

OLD = FakeEmbedder()
NEW = FakeEmbedder(identity="other@2", dimension=32)
CHUNKS = [
    chunk(f"codeword{number} of many", start=number * 50, attributes={"number": number})
    for number in range(300)
]


async def filled(folder: Path) -> None:
    store = await LanceStore.open(folder, OLD)
    await store.write(await embedded(OLD, *CHUNKS))
    await store.aclose()


async def migrated(folder: Path, embedder: FakeEmbedder = NEW) -> tuple[Migration, list[int]]:
    done: list[int] = []
    report = await migrate_index(folder, embedder, lambda now, _: done.append(now))
    return report, done


async def assert_found(folder: Path, embedder: FakeEmbedder) -> None:
    store = await LanceStore.open(folder, embedder)
    [vector] = await embedder.embed(["codeword7 of many"])
    found = await store.search(
        StoreQuery(terms=analyze_joined("codeword7"), vector=vector, document_ids=["doc"])
    )
    assert found.lexical[0].chunk == found.vector[0].chunk == CHUNKS[7]
    assert found.vector[0].score == pytest.approx(1.0, abs=1e-5)
    assert found.num_searched == len(CHUNKS)
    await store.aclose()


async def test_every_chunk_gets_the_new_embedders_vector(tmp_path: Path) -> None:
    await filled(tmp_path)
    report, done = await migrated(tmp_path)
    assert report == Migration(old="chunks_1", new="chunks_2", num_chunks=300)
    assert done == [0, 256, 300]
    await assert_found(tmp_path, NEW)
    assert not (tmp_path / f"{table_name(1)}.lance").exists()
    with pytest.raises(IndexMismatch):
        await LanceStore.open(tmp_path, OLD)


async def test_an_index_that_fits_already_is_left_alone(tmp_path: Path) -> None:
    await filled(tmp_path)
    report, done = await migrated(tmp_path, OLD)
    assert (report.old, report.new, done) == ("chunks_1", "chunks_1", [])


async def test_no_index_is_nothing_to_do(tmp_path: Path) -> None:
    report, _ = await migrated(tmp_path)
    assert report.num_chunks == 0


class FailingEmbedder(FakeEmbedder):
    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        raise SearchUnavailable("out of memory")


async def test_a_migration_cut_short_leaves_the_old_index_and_can_be_repeated(
    tmp_path: Path,
) -> None:
    await filled(tmp_path)
    with pytest.raises(SearchUnavailable):
        await migrated(tmp_path, FailingEmbedder(identity="other@2"))
    await assert_found(tmp_path, OLD)
    await migrated(tmp_path)
    await assert_found(tmp_path, NEW)


async def test_the_first_layout_is_refused_in_words_and_then_migrated(tmp_path: Path) -> None:
    await filled(tmp_path)
    await rewrite_as_first_layout(tmp_path)
    with pytest.raises(IndexMismatch, match=r"layout 1.*layout 2.*ringway index migrate"):
        await LanceStore.open(tmp_path, OLD)
    report, _ = await migrated(tmp_path, OLD)
    assert report.num_chunks == 300
    store = await LanceStore.open(tmp_path, OLD)
    assert await store.count("doc", "g1") == 300
    await store.aclose()


async def rewrite_as_first_layout(folder: Path) -> None:
    """The table as it was before collections and attributes."""
    database = await lancedb.connect_async(str(folder), read_consistency_interval=timedelta(0))
    rows = await (await database.open_table(table_name(1))).to_arrow()
    metadata = {k: v for k, v in table_schema(OLD).metadata.items() if k != b"layout"}
    rows = rows.drop_columns(["collection", "attributes"]).replace_schema_metadata(metadata)
    shutil.rmtree(folder / f"{table_name(1)}.lance")
    await database.create_table(table_name(1), rows)
