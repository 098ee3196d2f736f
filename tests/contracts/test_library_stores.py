"""What every `VectorStores` must do: the fake that the gateway's tests use, and the real one."""

from collections.abc import AsyncIterator, Awaitable, Sequence
from pathlib import Path

import pytest

from ingest.api import FileMissing
from ingest.stores_api import (
    BatchMissing,
    Chunking,
    NewStoreFile,
    NewVectorStore,
    PageRequest,
    StoreChanges,
    StoreFileStatus,
    StoreSearch,
    StoreStatus,
    VectorStoreExpired,
    VectorStoreMissing,
)
from retrieval.api import AllOf, AnyOf, Attribute, Comparator, Comparison, Filter, QueryRejected
from tests.contracts.library_benches import BENCHES, LEASE, Bench, OpenBench
from tests.contracts.test_library import RECIPE

DAY_S = 86_400


@pytest.fixture(params=BENCHES)
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    make: OpenBench = request.param
    async with make(tmp_path) as opened:
        yield opened


async def test_a_store_holds_the_files_it_was_created_with(bench: Bench) -> None:
    lease, recipe = await bench.file(), await bench.file(RECIPE)
    store = await bench.stores.create(
        NewVectorStore(
            name="papers",
            description="of the lighthouse",
            metadata={"owner": "keeper"},
            files=[NewStoreFile(file_id=lease), NewStoreFile(file_id=recipe)],
        )
    )
    assert store.id.startswith("vs_")
    assert (store.name, store.description) == ("papers", "of the lighthouse")
    assert store.metadata == {"owner": "keeper"}
    assert store.counts.total == 2
    await bench.settle()
    store = await bench.stores.get(store.id)
    assert (store.status, store.counts.completed) == (StoreStatus.COMPLETED, 2)
    assert store.usage_bytes > 0
    file = await bench.stores.get_file(store.id, lease)
    assert (file.status, file.chunking) == (StoreFileStatus.COMPLETED, Chunking())
    assert (await bench.found(store.id, "herring for the gulls"))[0] == lease


async def test_an_unknown_file_creates_nothing(bench: Bench) -> None:
    lease = await bench.file()
    new = [NewStoreFile(file_id=lease), NewStoreFile(file_id="file-nobody")]
    with pytest.raises(FileMissing):
        await bench.stores.create(NewVectorStore(files=new))
    assert (await bench.stores.list(PageRequest())).items == []
    store_id = await bench.store()
    with pytest.raises(FileMissing):
        await bench.stores.add_batch(store_id, new)
    assert (await bench.stores.get(store_id)).counts.total == 0


async def test_nobodys_store_is_missing_everywhere(bench: Bench) -> None:
    stores, nobody = bench.stores, "vs_nobody"
    file = NewStoreFile(file_id=await bench.file())
    calls: Sequence[Awaitable[object]] = (
        stores.get(nobody),
        stores.update(nobody, StoreChanges(name="x")),
        stores.delete(nobody),
        stores.add_file(nobody, file),
        stores.add_batch(nobody, [file]),
        stores.get_batch(nobody, "b"),
        stores.get_file(nobody, file.file_id),
        stores.list_files(nobody, PageRequest()),
        stores.remove_file(nobody, file.file_id),
        stores.update_file(nobody, file.file_id, {}),
        stores.search(nobody, StoreSearch(queries=["herring"])),
        stores.list(PageRequest(after=nobody)),
    )
    for call in calls:
        with pytest.raises(VectorStoreMissing):
            await call
    store_id = await bench.store()
    for missing in (stores.get_batch(store_id, "b"), stores.cancel_batch(store_id, "b")):
        with pytest.raises(BatchMissing):
            await missing
    with pytest.raises(FileMissing):
        await stores.get_file(store_id, file.file_id)


async def test_a_file_is_found_only_in_stores_that_hold_it(bench: Bench) -> None:
    lease, recipe = await bench.file(), await bench.file(RECIPE)
    mine, theirs = await bench.store(lease), await bench.store(recipe)
    assert await bench.found(mine, "herring for the gulls") == [lease]
    assert lease not in await bench.found(theirs, "herring for the gulls")
    assert await bench.found(theirs, "bread in the oven") == [recipe]


async def test_a_hit_shows_the_exact_span_and_the_files_attributes(bench: Bench) -> None:
    lease = await bench.file(name="lease.txt")
    store_id = await bench.store()
    new = NewStoreFile(file_id=lease, attributes={"year": 1911, "kind": "lease", "signed": True})
    await bench.stores.add_file(store_id, new)
    await bench.settle()
    found = await bench.stores.search(store_id, StoreSearch(queries=["herring for the gulls"]))
    hit = found.hits[0]
    assert hit.filename == "lease.txt"
    assert hit.attributes == {"year": 1911, "kind": "lease", "signed": True}
    assert hit.passage.text == LEASE[hit.passage.start : hit.passage.stop]
    assert 0 < hit.passage.score <= 1


FILTERS: list[tuple[Filter, str]] = [
    (Comparison("year", Comparator.EQ, 1911.0), "old"),
    (Comparison("year", Comparator.NE, 1911.0), "new none"),
    (Comparison("year", Comparator.GT, 1911.0), "new"),
    (Comparison("year", Comparator.GTE, 1911.0), "old new"),
    (Comparison("year", Comparator.LT, 1990.0), "old"),
    (Comparison("kind", Comparator.IN, ("deed", "lease")), "old new"),
    (Comparison("kind", Comparator.NIN, ("lease",)), "new none"),
    (Comparison("kind", Comparator.EQ, 1.0), ""),
    (
        AllOf((Comparison("year", Comparator.GT, 1.0), Comparison("kind", Comparator.EQ, "deed"))),
        "new",
    ),
    (
        AnyOf((Comparison("year", Comparator.LT, 2.0), Comparison("kind", Comparator.EQ, "deed"))),
        "new",
    ),
]


async def test_filters_compare_attributes(bench: Bench) -> None:
    names: dict[str, dict[str, Attribute]] = {
        "old": {"year": 1911, "kind": "lease"},
        "new": {"year": 1999, "kind": "deed"},
    }
    store_id = await bench.store()
    ids: dict[str, str] = {}
    for name in ("old", "new", "none"):
        ids[name] = await bench.file(f"{LEASE}\n\nThis is the paper called {name}.")
        new = NewStoreFile(file_id=ids[name], attributes=names.get(name, {}))
        await bench.stores.add_file(store_id, new)
    await bench.settle()
    for wanted, expected in FILTERS:
        found = await bench.found(store_id, "herring for the gulls", wanted)
        assert set(found) == {ids[name] for name in expected.split()}, wanted


async def test_changed_attributes_count_at_once_in_what_is_let_out(bench: Bench) -> None:
    lease = await bench.file()
    store_id = await bench.store()
    new = NewStoreFile(file_id=lease, attributes={"tenant": "a"})
    await bench.stores.add_file(store_id, new)
    await bench.settle()
    file = await bench.stores.update_file(store_id, lease, {"tenant": "b"})
    assert file.attributes == {"tenant": "b"}
    is_a, is_b = (Comparison("tenant", Comparator.EQ, one) for one in "ab")
    assert await bench.found(store_id, "herring", is_a) == []
    assert await bench.found(store_id, "herring") == [lease]
    await bench.settle()
    assert await bench.found(store_id, "herring", is_a) == []
    assert await bench.found(store_id, "herring", is_b) == [lease]


async def test_several_queries_are_one_list_without_overlap(bench: Bench) -> None:
    lease, recipe = await bench.file(), await bench.file(RECIPE)
    store_id = await bench.store(lease, recipe)
    queries = ["herring for the gulls", "bread in the oven", "herring in the harbour"]
    found = await bench.stores.search(store_id, StoreSearch(queries=queries, top_k=50))
    assert {hit.passage.document_id for hit in found.hits} == {lease, recipe}
    spans = [(hit.passage.document_id, hit.passage.start) for hit in found.hits]
    assert len(spans) == len(set(spans))
    scores = [hit.passage.score for hit in found.hits]
    assert scores == sorted(scores, reverse=True)
    one = await bench.stores.search(store_id, StoreSearch(queries=queries, top_k=1))
    assert len(one.hits) == 1
    none = StoreSearch(queries=["herring"], score_threshold=1.1)
    assert (await bench.stores.search(store_id, none)).hits == []


async def test_a_query_without_words_is_rejected(bench: Bench) -> None:
    store_id = await bench.store(await bench.file())
    with pytest.raises(QueryRejected):
        await bench.stores.search(store_id, StoreSearch(queries=["herring", " ?! "]))


async def test_a_file_that_cannot_be_read_fails_in_the_store_with_its_cause(bench: Bench) -> None:
    good, bad = await bench.file(), await bench.file("")
    store_id = await bench.store(good, bad)
    file = await bench.stores.get_file(store_id, bad)
    assert file.status is StoreFileStatus.FAILED
    assert file.cause is not None
    assert "empty" in file.cause
    assert file.failure == "invalid_file"
    store = await bench.stores.get(store_id)
    assert (store.counts.failed, store.counts.completed) == (1, 1)
    assert store.status is StoreStatus.COMPLETED
    failed = await bench.stores.list_files(store_id, PageRequest(), status=StoreFileStatus.FAILED)
    assert [one.file_id for one in failed.items] == [bad]


async def test_a_removed_file_is_gone_at_once_from_this_store_only(bench: Bench) -> None:
    lease = await bench.file()
    one, other = await bench.store(lease), await bench.store(lease)
    await bench.stores.remove_file(one, lease)
    for _ in range(2):
        assert await bench.found(one, "herring") == []
        with pytest.raises(FileMissing):
            await bench.stores.get_file(one, lease)
        with pytest.raises(FileMissing):
            await bench.stores.remove_file(one, lease)
        assert (await bench.stores.get(one)).counts.total == 0
        await bench.settle()
    assert await bench.found(other, "herring") == [lease]
    await bench.stores.add_file(one, NewStoreFile(file_id=lease))
    await bench.settle()
    assert await bench.found(one, "herring") == [lease]


async def test_a_file_that_comes_back_before_it_was_cleared_stays(bench: Bench) -> None:
    lease = await bench.file()
    store_id = await bench.store(lease)
    await bench.stores.remove_file(store_id, lease)
    await bench.stores.add_file(store_id, NewStoreFile(file_id=lease))
    await bench.settle()
    assert await bench.found(store_id, "herring") == [lease]
    assert (await bench.stores.get(store_id)).counts.completed == 1


async def test_a_deleted_file_leaves_every_store(bench: Bench) -> None:
    lease, recipe = await bench.file(), await bench.file(RECIPE)
    stores = [await bench.store(lease, recipe), await bench.store(lease)]
    await bench.library.delete(lease)
    for _ in range(2):
        for store_id in stores:
            assert lease not in await bench.found(store_id, "herring bread")
            with pytest.raises(FileMissing):
                await bench.stores.get_file(store_id, lease)
        await bench.settle()
    assert (await bench.stores.get(stores[0])).counts.total == 1


async def test_a_deleted_store_is_gone_and_its_files_stay(bench: Bench) -> None:
    lease = await bench.file()
    store_id = await bench.store(lease)
    await bench.stores.delete(store_id)
    for _ in range(2):
        with pytest.raises(VectorStoreMissing):
            await bench.stores.get(store_id)
        with pytest.raises(VectorStoreMissing):
            await bench.stores.search(store_id, StoreSearch(queries=["herring"]))
        await bench.settle()
    assert (await bench.library.get(lease)).id == lease


async def test_a_batch_counts_its_own_files(bench: Bench) -> None:
    first = await bench.file()
    store_id = await bench.store(first)
    ids = [await bench.file(f"{LEASE} {n}") for n in range(3)]
    new = [NewStoreFile(file_id=one, attributes={"n": n}) for n, one in enumerate(ids)]
    batch = await bench.stores.add_batch(store_id, new)
    assert batch.counts.total == 3
    await bench.settle()
    batch = await bench.stores.get_batch(store_id, batch.id)
    assert (batch.status, batch.counts.completed) == (StoreFileStatus.COMPLETED, 3)
    page = await bench.stores.list_files(store_id, PageRequest(ascending=True), batch_id=batch.id)
    assert [one.file_id for one in page.items] == ids
    assert [one.attributes["n"] for one in page.items] == [0, 1, 2]
    assert (await bench.stores.get(store_id)).counts.total == 4


async def test_a_store_expires_so_many_days_after_its_last_use(bench: Bench) -> None:
    lease = await bench.file()
    store = await bench.stores.create(
        NewVectorStore(expires_after_days=2, files=[NewStoreFile(file_id=lease)])
    )
    await bench.settle()
    bench.clock.now += 1.5 * DAY_S
    assert await bench.found(store.id, "herring") == [lease]
    bench.clock.now += 1.5 * DAY_S
    assert await bench.found(store.id, "herring") == [lease]
    bench.clock.now += 2.1 * DAY_S
    expired = await bench.stores.get(store.id)
    assert expired.status is StoreStatus.EXPIRED
    for call in (
        bench.found(store.id, "herring"),
        bench.stores.add_file(store.id, NewStoreFile(file_id=lease)),
        bench.stores.list_files(store.id, PageRequest()),
        bench.stores.update(store.id, StoreChanges(expires_after_days=9)),
    ):
        with pytest.raises(VectorStoreExpired):
            await call
    await bench.stores.delete(store.id)


async def test_changes_leave_the_rest_as_it_is(bench: Bench) -> None:
    store = await bench.stores.create(NewVectorStore(name="a", metadata={"k": "v"}))
    changed = await bench.stores.update(store.id, StoreChanges(name="b", expires_after_days=3))
    assert (changed.name, changed.metadata, changed.expires_after_days) == ("b", {"k": "v"}, 3)
    assert changed.expires_at == changed.last_active_at + 3 * DAY_S
    changed = await bench.stores.update(store.id, StoreChanges(expires_after_days=0))
    assert (changed.name, changed.expires_after_days, changed.expires_at) == ("b", None, None)


async def test_pages_go_both_ways_from_a_cursor(bench: Bench) -> None:
    ids = [await bench.file(f"{LEASE} {n}") for n in range(5)]
    store_id = await bench.store(*ids)

    async def page(**fields: object) -> tuple[list[str], bool]:
        request = PageRequest(**fields)  # type: ignore[arg-type]
        found = await bench.stores.list_files(store_id, request)
        return [one.file_id for one in found.items], found.has_more

    assert await page(limit=2, ascending=True) == (ids[:2], True)
    assert await page(limit=2) == (ids[:2:-1], True)
    assert await page(limit=9, ascending=True, after=ids[1]) == (ids[2:], False)
    assert await page(limit=2, ascending=True, before=ids[3]) == (ids[1:3], True)
    assert await page(limit=2, before=ids[2]) == ([ids[4], ids[3]], False)
    assert await page(ascending=True, after=ids[0], before=ids[3]) == (ids[1:3], False)
    with pytest.raises(FileMissing):
        await page(after="file-nobody")
