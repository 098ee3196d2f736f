"""What only an index on a server can get wrong: other embedders, other writers, lost answers."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import aiohttp
import pytest

from retrieval.analyzer import analyze_joined
from retrieval.api import (
    Candidates,
    Comparator,
    Comparison,
    IndexMismatch,
    SearchUnavailable,
    StoreQuery,
    WriteRejected,
)
from retrieval.config import OpenSearchConfig
from retrieval.embedder import FakeEmbedder
from retrieval.migration import Migration, MigrationRefused
from retrieval.stores.opensearch.bulk import index_action
from retrieval.stores.opensearch.cluster import Cluster
from retrieval.stores.opensearch.documents import document_of
from retrieval.stores.opensearch.migration import OpenSearchMigration
from retrieval.stores.opensearch.store import OpenSearchStore
from tests.contracts.store_makers import NODE, needs_node, own_alias, serverless_config
from tests.retrieval.chunks import chunk, embedded
from tests.retrieval.stores.opensearch.sigv4 import ACCESS_KEY, SECRET_KEY
from tests.retrieval.stores.opensearch.strict_proxy import plain_proxy, strict_proxy

pytestmark = [pytest.mark.services, needs_node]

EMBEDDER = FakeEmbedder()
OTHER = FakeEmbedder(identity="other@2", dimension=32)


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)


@pytest.fixture
async def config() -> AsyncIterator[OpenSearchConfig]:
    async with own_alias() as alias:
        yield OpenSearchConfig(url=NODE, alias=alias)


async def write(store: OpenSearchStore, embedder: FakeEmbedder, *document_ids: str) -> None:
    chunks = [
        chunk(f"codeword{number} in {document_id}", document_id=document_id, start=number * 50)
        for document_id in document_ids
        for number in range(3)
    ]
    await store.write(await embedded(embedder, *chunks))


async def ask(store: OpenSearchStore, embedder: FakeEmbedder, query: str) -> Candidates:
    [vector] = await embedder.embed([query])
    return await store.search(
        StoreQuery(terms=analyze_joined(query), vector=vector, document_ids=None)
    )


def found_documents(found: Candidates) -> set[str]:
    return {hit.chunk.document_id for hit in (*found.lexical, *found.vector)}


async def indices(alias: str) -> dict[str, bool]:
    """Every version's name, and whether the alias names it."""
    async with (
        aiohttp.ClientSession(NODE) as session,
        session.get(f"/{alias}-v*/_alias") as answer,
    ):
        return {name: bool(each["aliases"]) for name, each in (await answer.json()).items()}


async def migrate(
    config: OpenSearchConfig, embedder: FakeEmbedder = OTHER, *, restart: bool = False
) -> Migration:
    migration = OpenSearchMigration(config, embedder, lambda *_: None, restart=restart)
    return await migration.run()


async def test_processes_that_start_at_once_share_one_index(config: OpenSearchConfig) -> None:
    stores = await asyncio.gather(*(OpenSearchStore.open(EMBEDDER, config) for _ in range(4)))
    await write(stores[0], EMBEDDER, "doc")
    assert [await store.count("doc", "g1") for store in stores] == [3] * 4
    assert await indices(config.alias) == {f"{config.alias}-v000001": True}
    for store in stores:
        await store.aclose()


@pytest.mark.parametrize("other", [OTHER, FakeEmbedder(dimension=8)])
async def test_another_embedder_is_refused(config: OpenSearchConfig, other: FakeEmbedder) -> None:
    await (await OpenSearchStore.open(EMBEDDER, config)).aclose()
    with pytest.raises(IndexMismatch, match="ringway index migrate"):
        await OpenSearchStore.open(other, config)


async def test_an_index_that_is_not_ours_is_refused(config: OpenSearchConfig) -> None:
    async with aiohttp.ClientSession(NODE) as session:
        body: dict[str, object] = {"aliases": {config.alias: {}}}
        async with session.put(f"/{config.alias}-v000007", json=body) as answer:
            assert answer.status == 200
    with pytest.raises(IndexMismatch, match="something else"):
        await OpenSearchStore.open(EMBEDDER, config)


async def test_a_node_that_is_down_makes_everything_unavailable(config: OpenSearchConfig) -> None:
    async with plain_proxy(NODE) as url:
        store = await OpenSearchStore.open(
            EMBEDDER, OpenSearchConfig(url=url, alias=config.alias, max_attempts=1)
        )
    for deed in (
        ask(store, EMBEDDER, "codeword1"),
        write(store, EMBEDDER, "doc"),
        store.delete("doc"),
        store.count("doc", "g1"),
    ):
        with pytest.raises(SearchUnavailable, match="does not answer"):
            await deed
    await store.aclose()


async def test_a_lost_answer_leaves_no_second_copy(config: OpenSearchConfig) -> None:
    async with plain_proxy(NODE, lost_answers=2) as url:
        store = await OpenSearchStore.open(EMBEDDER, OpenSearchConfig(url=url, alias=config.alias))
        await write(store, EMBEDDER, "doc")
        assert await store.count("doc", "g1") == 3
        assert (await ask(store, EMBEDDER, "codeword1")).num_searched == 3
        await store.aclose()


async def test_a_lost_answer_leaves_no_second_copy_on_serverless() -> None:
    async with own_alias() as alias, strict_proxy(NODE, lost_answers=2) as url:
        store = await OpenSearchStore.open(EMBEDDER, serverless_config(url, alias))
        await write(store, EMBEDDER, "doc")
        assert await store.count("doc", "g1") == 3
        assert (await ask(store, EMBEDDER, "codeword1")).num_searched == 3
        await store.aclose()


async def test_what_a_killed_writer_left_unseen_is_deleted_too(config: OpenSearchConfig) -> None:
    store = await OpenSearchStore.open(EMBEDDER, config)
    [one] = await embedded(EMBEDDER, chunk("words"))
    cluster = Cluster.connect(config)
    action = index_action(document_of(one, "stamp"), id_=one.chunk.id)
    await cluster.bulk(f"{config.alias}-v000001", action.lines)
    await store.delete("doc")
    await cluster.call("POST", f"/{config.alias}-v000001/_refresh")
    assert await store.count("doc", "g1") == 0
    await cluster.aclose()
    await store.aclose()


async def test_a_chunk_that_opensearch_cannot_index_is_refused_with_its_reason(
    config: OpenSearchConfig,
) -> None:
    store = await OpenSearchStore.open(EMBEDDER, config)
    bad = chunk("words", attributes={"k": "x" * 40_000})
    with pytest.raises(WriteRejected, match="immense term"):
        await store.write(await embedded(EMBEDDER, chunk("fine", start=9), bad))
    await store.aclose()


async def test_vectors_stay_behind_when_nobody_wants_them(config: OpenSearchConfig) -> None:
    lean = OpenSearchConfig(url=NODE, alias=config.alias, fetch_vectors=False)
    store = await OpenSearchStore.open(EMBEDDER, lean)
    await write(store, EMBEDDER, "doc")
    found = await ask(store, EMBEDDER, "codeword1 in doc")
    assert all(not len(hit.vector) for hit in (*found.lexical, *found.vector))
    assert found.vector[0].score == pytest.approx(1.0, abs=1e-5)
    await store.aclose()


async def test_migrating_re_embeds_everything_and_moves_the_alias(
    config: OpenSearchConfig,
) -> None:
    old = await OpenSearchStore.open(EMBEDDER, config)
    await write(old, EMBEDDER, "a", "b")
    report = await migrate(config)
    assert (report.old[-7:], report.new[-7:], report.num_chunks) == ("v000001", "v000002", 6)
    new = await OpenSearchStore.open(OTHER, config)
    found = await ask(new, OTHER, "codeword1 in b")
    assert found.vector[0].score == pytest.approx(1.0, abs=1e-5)
    assert found.num_searched == 6
    assert (await migrate(config)).new == report.new

    assert found_documents(await ask(old, EMBEDDER, "codeword1")) == {"a", "b"}
    for refused in (write(old, EMBEDDER, "late"), old.delete("a")):
        with pytest.raises(SearchUnavailable, match=r"moved from .*v000001 to .*v000002"):
            await refused
    await old.aclose()
    await new.aclose()


class BusyEmbedder(FakeEmbedder):
    """While it embeds the first batch, somebody writes, deletes and rewrites."""

    def __init__(self, store: OpenSearchStore) -> None:
        super().__init__(identity="other@2", dimension=32)
        self._store = store
        self._calls = 0

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        self._calls += 1
        if self._calls == 1:
            await write(self._store, EMBEDDER, "late")
            await self._store.delete("gone")
            changed = chunk("codeword0 in kept", document_id="kept", attributes={"year": 2024})
            await self._store.write(await embedded(EMBEDDER, changed))
        if self._calls == 2:
            with pytest.raises(SearchUnavailable, match="403"):
                await write(self._store, EMBEDDER, "too late")
        return await super().embed(texts)


async def test_what_is_written_while_migrating_is_not_lost(config: OpenSearchConfig) -> None:
    store = await OpenSearchStore.open(EMBEDDER, config)
    await write(store, EMBEDDER, "gone", "kept")
    await migrate(config, BusyEmbedder(store))
    new = await OpenSearchStore.open(OTHER, config)
    assert found_documents(await ask(new, OTHER, "codeword1")) == {"kept", "late"}
    [vector] = await OTHER.embed(["codeword0"])
    changed = await new.search(
        StoreQuery(
            terms="",
            vector=vector,
            document_ids=None,
            filter=Comparison("year", Comparator.EQ, 2024),
        )
    )
    assert [hit.chunk.text for hit in changed.vector] == ["codeword0 in kept"]
    await store.aclose()
    await new.aclose()


class FailingEmbedder(FakeEmbedder):
    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        raise SearchUnavailable("out of memory")


async def test_a_migration_that_fails_leaves_the_old_index_as_it_was(
    config: OpenSearchConfig,
) -> None:
    store = await OpenSearchStore.open(EMBEDDER, config)
    await write(store, EMBEDDER, "a")
    with pytest.raises(SearchUnavailable, match="out of memory"):
        await migrate(config, FailingEmbedder(identity="other@2"))
    await write(store, EMBEDDER, "b")
    assert await indices(config.alias) == {f"{config.alias}-v000001": True}
    await store.aclose()


async def test_a_migration_that_was_killed_is_begun_again_when_told_to(
    config: OpenSearchConfig,
) -> None:
    store = await OpenSearchStore.open(EMBEDDER, config)
    await write(store, EMBEDDER, "a")
    async with aiohttp.ClientSession(NODE) as session:
        async with session.put(f"/{config.alias}-v000002") as answer:
            assert answer.status == 200
        blocked = {"index.blocks.write": True}
        async with session.put(f"/{config.alias}-v000001/_settings", json=blocked) as answer:
            assert answer.status == 200
    with pytest.raises(MigrationRefused, match="--restart"):
        await migrate(config)
    assert (await migrate(config, restart=True)).num_chunks == 3
    await store.aclose()


async def test_serverless_migrates_only_when_writers_are_stopped() -> None:
    async with own_alias() as alias, strict_proxy(NODE) as url:
        config = serverless_config(url, alias)
        store = await OpenSearchStore.open(EMBEDDER, config)
        await write(store, EMBEDDER, "a")
        with pytest.raises(MigrationRefused, match="--writers-stopped"):
            await migrate(config)
        migration = OpenSearchMigration(config, OTHER, lambda *_: None, writers_stopped=True)
        assert (await migration.run()).num_chunks == 3
        new = await OpenSearchStore.open(OTHER, config)
        assert found_documents(await ask(new, OTHER, "codeword1")) == {"a"}
        await store.aclose()
        await new.aclose()
