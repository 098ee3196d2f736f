"""What every Store must do; each implementation is one entry of `store_makers.ALL`."""

from pathlib import Path

import pytest

from retrieval.api import Hit, Store
from retrieval.stores.memory import MemoryStore
from tests.contracts import store_makers
from tests.contracts.store_asking import SENTENCES, ask, fill
from tests.contracts.store_makers import EMBEDDER, OpenStore
from tests.retrieval.chunks import chunk, embedded


def texts(hits: "list[Hit] | tuple[Hit, ...]") -> list[str]:
    return [hit.chunk.text for hit in hits]


async def test_an_empty_store_finds_nothing(store: Store) -> None:
    found = await ask(store, "deposition", "doc")
    assert (list(found.lexical), list(found.vector), found.num_searched) == ([], [], 0)


async def test_what_was_written_is_found_by_both_sides_at_once(store: Store) -> None:
    await fill(store)
    found = await ask(store, "When is payment of an invoice due?", "doc")
    assert found.lexical[0].chunk.text == SENTENCES[1]
    assert found.vector[0].chunk.text == SENTENCES[1]
    assert found.num_searched == len(SENTENCES)


async def test_a_chunk_comes_back_whole(store: Store) -> None:
    written = chunk(
        'Größe "it\'s"\n東京 \\ %_',
        document_id="a'b; --",
        start=7,
        parent=(2, 90),
        heading="Title > Part",
    )
    await store.write(await embedded(EMBEDDER, written))
    found = await ask(store, "Größe", "a'b; --")
    assert found.lexical[0].chunk == written
    assert found.vector[0].chunk == written


async def test_every_later_write_is_found_too(store: Store) -> None:
    for number in range(6):
        late = chunk(f"codeword{number} belongs to batch", document_id=f"doc{number}")
        await store.write(await embedded(EMBEDDER, late))
        found = await ask(store, f"codeword{number}", f"doc{number}", "doc0")
        assert found.lexical[0].chunk == late


async def test_headings_are_searched_but_are_not_text(store: Store) -> None:
    await store.write(await embedded(EMBEDDER, chunk("It is nine pages.", heading="Exhibit Zeta")))
    found = await ask(store, "zeta", "doc")
    assert [hit.chunk.text for hit in found.lexical] == ["It is nine pages."]


@pytest.mark.parametrize(
    "query", ["max_num_seqs", "maxNumSeqs", "http request", "PARSEHTTPREQUEST"]
)
async def test_identifiers_are_found_whole_and_split(store: Store, query: str) -> None:
    await fill(store)
    found = await ask(store, query, "doc")
    assert found.lexical[0].chunk.text == SENTENCES[3]


async def test_scores_are_raw_and_fall(store: Store) -> None:
    await fill(store)
    found = await ask(store, SENTENCES[2], "doc")
    lexical = [hit.score for hit in found.lexical]
    vector = [hit.score for hit in found.vector]
    assert lexical == sorted(lexical, reverse=True)
    assert vector == sorted(vector, reverse=True)
    assert lexical[0] > 1.0
    assert vector[0] == pytest.approx(1.0, abs=1e-5)
    assert all(-1.0001 <= score <= 1.0001 for score in vector)


async def test_search_stays_in_scope(store: Store) -> None:
    for document_id in ("mine", "also mine", "theirs"):
        await fill(store, document_id)
    found = await ask(store, "tenant premises repair", "mine", "also mine", "unknown")
    seen = {hit.chunk.document_id for hit in (*found.lexical, *found.vector)}
    assert seen == {"mine", "also mine"}
    assert found.num_searched == 2 * len(SENTENCES)


async def test_a_better_document_outside_the_scope_takes_no_place(store: Store) -> None:
    for number in range(5):
        await fill(store, f"theirs{number}")
    await store.write(
        await embedded(EMBEDDER, chunk("Some invoice, one of many words.", document_id="mine"))
    )
    found = await ask(store, "invoice payment due", "mine", limit=1)
    assert [hit.chunk.document_id for hit in found.lexical] == ["mine"]
    assert [hit.chunk.document_id for hit in found.vector] == ["mine"]


async def test_an_empty_scope_finds_nothing(store: Store) -> None:
    await fill(store)
    found = await ask(store, "invoice")
    assert not found.lexical
    assert not found.vector


async def test_no_more_candidates_than_asked_for(store: Store) -> None:
    await fill(store)
    found = await ask(store, "tenant invoice indemnity deposition", "doc", limit=2)
    assert len(found.lexical) == len(found.vector) == 2


async def test_terms_that_nothing_holds_leave_the_vector_side(store: Store) -> None:
    await fill(store)
    found = await ask(store, "xylophone", "doc")
    assert not found.lexical
    assert len(found.vector) == len(SENTENCES)


async def test_a_query_of_no_terms_leaves_the_vector_side(store: Store) -> None:
    await fill(store)
    found = await ask(store, "the of and", "doc")
    assert not found.lexical
    assert len(found.vector) == len(SENTENCES)


async def test_writing_twice_changes_nothing(store: Store) -> None:
    await fill(store)
    await fill(store)
    assert await store.count("doc", "g1") == len(SENTENCES)
    found = await ask(store, "invoice", "doc")
    assert len(found.lexical) == 1


async def test_a_chunk_is_replaced_by_id(store: Store) -> None:
    before = chunk("old words", heading="before")
    after = chunk("old words", heading="after")
    await store.write(await embedded(EMBEDDER, before, after))
    await store.write(await embedded(EMBEDDER, after))
    found = await ask(store, "words", "doc")
    assert [hit.chunk for hit in found.lexical] == [after]
    assert not (await ask(store, "before", "doc")).lexical


async def test_nothing_to_write_is_fine(store: Store) -> None:
    await store.write([])
    assert await store.count("doc", "g1") == 0


async def test_a_deleted_document_is_never_found_again(store: Store) -> None:
    await fill(store, "gone")
    await fill(store, "kept")
    await store.delete("gone")
    found = await ask(store, "invoice", "gone", "kept")
    assert {hit.chunk.document_id for hit in (*found.lexical, *found.vector)} == {"kept"}
    assert await store.count("gone", "g1") == 0
    assert await store.count("kept", "g1") == len(SENTENCES)


async def test_deleting_is_idempotent(store: Store) -> None:
    await fill(store)
    await store.delete("doc")
    await store.delete("doc")
    await store.delete("never was")
    assert await store.count("doc", "g1") == 0


async def test_a_new_generation_replaces_the_old_one(store: Store) -> None:
    await fill(store, generation="g1")
    await fill(store, generation="g2")
    await store.delete("doc", keep_generation="g2")
    assert await store.count("doc", "g1") == 0
    assert await store.count("doc", "g2") == len(SENTENCES)
    found = await ask(store, "invoice", "doc")
    assert {hit.chunk.generation for hit in (*found.lexical, *found.vector)} == {"g2"}


async def test_vectors_come_with_the_hits_or_not_at_all(store: Store) -> None:
    await fill(store)
    found = await ask(store, "invoice", "doc")
    [expected] = await EMBEDDER.embed([SENTENCES[1]])
    for hit in (*found.lexical, *found.vector):
        if hit.chunk.text == SENTENCES[1] and len(hit.vector):
            assert list(hit.vector) == pytest.approx(list(expected), abs=1e-6)


@pytest.mark.parametrize("make", store_makers.EMBEDDED_AND_NODE)
async def test_scores_agree_with_the_oracle(
    make: OpenStore, tmp_path: Path, credentials: None
) -> None:
    oracle = MemoryStore()
    async with make(tmp_path) as store:
        for document_id in ("a", "b", "c"):
            await fill(store, document_id)
            await fill(oracle, document_id)
        for query in ("tenant", "indemnity agreement invoice", "engine http", SENTENCES[0]):
            found = await ask(store, query, "a", "c")
            expected = await ask(oracle, query, "a", "c")
            assert [h.chunk.id for h in found.vector] == [h.chunk.id for h in expected.vector]
            assert [h.score for h in found.vector] == pytest.approx(
                [h.score for h in expected.vector], abs=1e-5
            )
            assert {h.chunk.id for h in found.lexical} == {h.chunk.id for h in expected.lexical}
            assert [h.score for h in found.lexical] == pytest.approx(
                [h.score for h in expected.lexical], rel=0.25
            )
