"""The whole search over the oracle store and over LanceDB, with fakes for the rest."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from retrieval.api import (
    Candidates,
    QueryRejected,
    SearchRequest,
    SearchUnavailable,
    Store,
    StoreQuery,
)
from retrieval.config import SearchConfig
from retrieval.embedder import FakeEmbedder
from retrieval.search import HybridSearcher
from retrieval.stores.memory import MemoryStore
from retrieval.wiring import make_searcher, open_searcher, open_store
from tests.retrieval.chunks import DictTexts, chunk, embedded

EMBEDDER = FakeEmbedder()
LEASE = "The tenant pays rent monthly. The deposit is nine hundred euros. Keys are returned in May."
MEMO = "Bees collect nectar. Clover blooms in June. The hive was moved to the orchard."
TEXTS = {"lease": LEASE, "memo": MEMO}


def search_for(query: str, *document_ids: str, top_k: int = 8) -> SearchRequest:
    return SearchRequest(query=query, document_ids=document_ids or tuple(TEXTS), top_k=top_k)


async def fill(store: Store) -> None:
    for document_id, text in TEXTS.items():
        start = 0
        for sentence in text.split(". "):
            piece = chunk(sentence, document_id=document_id, start=start)
            await store.write(await embedded(EMBEDDER, piece))
            start += len(sentence) + 2


async def filled_searcher(texts: DictTexts | None = None) -> HybridSearcher:
    store = MemoryStore()
    await fill(store)
    return HybridSearcher(store, EMBEDDER, texts or DictTexts(TEXTS), SearchConfig())


async def test_the_answer_comes_first_with_its_exact_span() -> None:
    searcher = await filled_searcher()
    result = await searcher.search(search_for("How much is the deposit?"))
    best = result.passages[0]
    assert "nine hundred euros" in best.text
    assert best.text == TEXTS[best.document_id][best.start : best.stop]
    assert 0 <= best.score <= 1
    assert result.num_searched == 6
    assert result.evidence > 0.5


async def test_another_subject_gets_weak_evidence() -> None:
    searcher = await filled_searcher()
    answered = await searcher.search(search_for("deposit of nine hundred euros", "lease"))
    unrelated = await searcher.search(search_for("volcanic eruptions in Iceland", "lease"))
    assert unrelated.evidence < 0.2 < answered.evidence


async def test_only_documents_in_scope_are_read() -> None:
    texts = DictTexts(TEXTS)
    searcher = await filled_searcher(texts)
    result = await searcher.search(search_for("tenant rent", "memo"))
    assert {passage.document_id for passage in result.passages} == {"memo"}
    assert set(texts.read) == {"memo"}


@pytest.mark.parametrize("query", ["", "  \n", "?!…"])
async def test_a_query_of_nothing_is_rejected(query: str) -> None:
    searcher = await filled_searcher()
    with pytest.raises(QueryRejected):
        await searcher.search(search_for(query))


async def test_no_documents_are_no_passages() -> None:
    searcher = await filled_searcher()
    result = await searcher.search(SearchRequest(query="rent", document_ids=()))
    assert (list(result.passages), result.evidence, result.num_searched) == ([], 0.0, 0)


async def test_a_document_deleted_meanwhile_is_not_cited() -> None:
    searcher = await filled_searcher(DictTexts({"memo": MEMO}))
    result = await searcher.search(search_for("tenant pays rent"))
    assert "lease" not in {passage.document_id for passage in result.passages}


async def test_top_k_bounds_the_passages() -> None:
    searcher = await filled_searcher()
    result = await searcher.search(search_for("tenant bees deposit clover", top_k=1))
    assert len(result.passages) == 1


class StuckStore(MemoryStore):
    async def search(self, query: StoreQuery) -> Candidates:
        await asyncio.Event().wait()
        raise AssertionError("never set")


async def test_a_passed_deadline_makes_search_unavailable() -> None:
    searcher = HybridSearcher(StuckStore(), EMBEDDER, DictTexts(TEXTS), SearchConfig())
    with pytest.raises(SearchUnavailable, match=r"longer than its 0\.05 s"):
        await searcher.search(SearchRequest(query="rent", document_ids=["lease"], deadline_s=0.05))


class OtherEmbedder(FakeEmbedder):
    """Embeds queries and texts alike; counts the calls."""

    calls = 0

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        self.calls += 1
        return await super().embed(texts)


async def test_a_search_embeds_once() -> None:
    store = MemoryStore()
    await fill(store)
    embedder = OtherEmbedder()
    await HybridSearcher(store, embedder, DictTexts(TEXTS), SearchConfig()).search(
        search_for("rent")
    )
    assert embedder.calls == 1


async def test_the_wired_searcher_finds_the_same_after_a_restart(tmp_path: Path) -> None:
    store = await open_store(tmp_path, EMBEDDER)
    await fill(store)
    request = search_for("When are the keys returned?")
    before = await make_searcher(store, EMBEDDER, DictTexts(TEXTS)).search(request)
    await store.aclose()
    async with open_searcher(tmp_path, EMBEDDER, DictTexts(TEXTS)) as searcher:
        after = await searcher.search(request)
    assert [replace(one, score=0.0) for one in before.passages] == [
        replace(one, score=0.0) for one in after.passages
    ]
    # The last write was not in the text index yet, whose sums come in another order then.
    scores = [one.score for one in before.passages]
    assert [one.score for one in after.passages] == pytest.approx(scores)
    assert "Keys are returned" in after.passages[0].text
