"""What every Store must keep to: collections, documents, filters, and what it must refuse."""

import uuid
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from retrieval.api import (
    LIBRARY,
    AllOf,
    Attribute,
    Comparator,
    Comparison,
    EmbeddedChunk,
    Filter,
    QueryRejected,
    Store,
    WriteRejected,
)
from retrieval.filters import matches
from tests.contracts import store_makers
from tests.contracts.store_asking import SENTENCES, ask, ask_collection, fill
from tests.contracts.store_makers import EMBEDDER, OpenStore
from tests.retrieval import filters
from tests.retrieval.chunks import chunk, embedded


async def test_a_collection_keeps_to_itself(store: Store) -> None:
    words = "tenant premises"
    mine = chunk(words, document_id="shared", collection="vs_1", attributes={"year": 2024})
    theirs = chunk(words, document_id="shared", collection="vs_2")
    await store.write(await embedded(EMBEDDER, mine, theirs, chunk(words, document_id="shared")))
    found = await ask_collection(store, "tenant", "vs_1")
    assert [hit.chunk for hit in found.lexical] == [hit.chunk for hit in found.vector] == [mine]
    assert found.num_searched == 1
    await store.delete("shared", collection="vs_1")
    assert not (await ask_collection(store, "tenant", "vs_1")).vector
    assert await store.count("shared", "g1", collection="vs_1") == 0
    assert await store.count("shared", "g1", collection="vs_2") == 1
    assert await store.count("shared", "g1") == 1


async def test_no_documents_named_are_all_of_the_collection(store: Store) -> None:
    for document_id in ("a", "b"):
        await fill(store, document_id)
    found = await ask_collection(store, "invoice", LIBRARY)
    assert {hit.chunk.document_id for hit in found.lexical} == {"a", "b"}
    assert found.num_searched == 2 * len(SENTENCES)


async def test_attributes_come_back_with_their_types(store: Store) -> None:
    attributes: dict[str, Attribute] = {
        "n": 3,
        "x": -0.1,
        "b": False,
        "s": "3",
        'o\'dd "key".[0] \x00': "ü\n",
    }
    written = chunk("some words", attributes=attributes)
    await store.write(await embedded(EMBEDDER, written))
    [found] = (await ask(store, "words", "doc")).lexical
    assert found.chunk == written
    assert {key: type(value) for key, value in found.chunk.attributes.items()} == {
        key: float if isinstance(value, int) and not isinstance(value, bool) else type(value)
        for key, value in attributes.items()
    }


async def test_a_rewritten_chunk_has_only_its_new_attributes(store: Store) -> None:
    for year in (2023, 2024):
        changed = chunk("some words", attributes={"year": year})
        await store.write(await embedded(EMBEDDER, changed))
    old, new = (Comparison("year", Comparator.EQ, year) for year in (2023, 2024))
    assert not (await ask_collection(store, "words", LIBRARY, old)).vector
    assert len((await ask_collection(store, "words", LIBRARY, new)).vector) == 1


async def test_what_a_filter_hides_takes_no_place(store: Store) -> None:
    better = [
        chunk("invoice payment due", document_id=f"d{n}", attributes={"lang": "de"})
        for n in range(5)
    ]
    wanted = chunk("an invoice of many words", document_id="mine", attributes={"lang": "en"})
    await store.write(await embedded(EMBEDDER, *better, wanted))
    english = Comparison("lang", Comparator.EQ, "en")
    found = await ask_collection(store, "invoice payment due", LIBRARY, english, limit=1)
    assert [hit.chunk for hit in found.lexical] == [hit.chunk for hit in found.vector] == [wanted]
    assert found.num_searched == 1


@pytest.mark.timeout(60)
@settings(
    max_examples=10,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    rows=st.lists(filters.attribute_maps(), min_size=1, max_size=8),
    wanted=st.lists(filters.filters(), min_size=6, max_size=6),
)
async def test_filters_mean_the_same_everywhere(
    store: Store, rows: list[dict[str, Attribute]], wanted: list[Filter]
) -> None:
    collection = uuid.uuid4().hex
    chunks = [
        chunk(f"word {n}", document_id=f"d{n}", collection=collection, attributes=attributes)
        for n, attributes in enumerate(rows)
    ]
    await store.write(await embedded(EMBEDDER, *chunks))
    for each in wanted:
        found = await ask_collection(store, "word", collection, each)
        expected = {one.id for one in chunks if matches(each, one.attributes)}
        assert {hit.chunk.id for hit in found.vector} == expected, each
        assert {hit.chunk.id for hit in found.lexical} == expected, each
        assert found.num_searched == len(expected)


async def test_a_filter_beyond_the_limits_is_refused(store: Store) -> None:
    one = Comparison("k", Comparator.EQ, 1)
    with pytest.raises(QueryRejected, match="300 comparisons; the limit is 256"):
        await ask_collection(store, "word", LIBRARY, AllOf((one,) * 300))


async def test_an_attribute_that_is_no_number_is_refused(store: Store) -> None:
    bad = chunk("words", attributes={"ratio": float("nan")})
    with pytest.raises(WriteRejected, match="'ratio' is nan") as refusal:
        await store.write(await embedded(EMBEDDER, bad))
    assert refusal.value.chunk_id == bad.id


@pytest.mark.parametrize("number", [0.0, float("nan"), float("inf")])
async def test_a_vector_without_direction_is_refused(store: Store, number: float) -> None:
    bad = EmbeddedChunk(chunk("words"), [number] * EMBEDDER.dimension)
    with pytest.raises(WriteRejected, match="its vector's length is"):
        await store.write([bad])


@pytest.mark.timeout(60)
@pytest.mark.parametrize("make", store_makers.ONE_OF_EACH_KIND)
async def test_a_scope_of_seventy_thousand_documents_is_kept(
    make: OpenStore, tmp_path: Path, credentials: None
) -> None:
    scope = [f"file-{number:08d}" for number in range(70_000)]
    async with make(tmp_path) as store:
        await fill(store, "mine")
        await fill(store, "theirs")
        found = await ask(store, "tenant repair", *scope, "mine")
    assert {hit.chunk.document_id for hit in (*found.lexical, *found.vector)} == {"mine"}


async def test_a_question_of_three_thousand_words_is_asked_whole(store: Store) -> None:
    await fill(store)
    padding = " ".join(f"padding{number}" for number in range(1_500))
    found = await ask(store, f"indemnity {padding} {padding[::-1]} termination", "doc")
    assert found.lexical[0].chunk.text == SENTENCES[4]
    alone = await ask(store, "indemnity termination", "doc")
    assert found.lexical[0].score == pytest.approx(alone.lexical[0].score, rel=1e-4)
