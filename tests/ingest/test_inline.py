"""Inline documents are indexed once, embedded sparingly, and forgotten in good time."""

from collections.abc import Sequence

import pytest

from ingest.api import InlineDocument, InlineSearch
from ingest.inline import InlineConfig, InlineSearcher, digest_of
from retrieval.api import SearchUnavailable
from retrieval.embedder import FakeEmbedder
from retrieval.stores.rows import search_text
from tests.ingest.house import SMALL_CHUNKS

HAY = [f"Entry {n}: the weather on day {n} was as usual, wind {n % 7}." for n in range(3000)]
NEEDLE = "The password of the vault is periwinkle."


class CountingEmbedder:
    identity = "counting"
    dimension = 64
    window_tokens = 256

    def __init__(self) -> None:
        self.num_texts = 0
        self._inner = FakeEmbedder()

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        self.num_texts += len(texts)
        return await self._inner.embed(texts)


@pytest.fixture
def embedder() -> CountingEmbedder:
    return CountingEmbedder()


def searcher(embedder: CountingEmbedder, *, cache_bytes: int = 1 << 30) -> InlineSearcher:
    config = InlineConfig(chunks=SMALL_CHUNKS, num_embedded=50, cache_bytes=cache_bytes)
    return InlineSearcher(embedder, search_text, config)


def haystack(salt: str = "") -> list[InlineDocument]:
    text = "\n\n".join([*HAY[:2000], NEEDLE, *HAY[2000:], salt])
    return [InlineDocument("hay", text)]


async def test_the_needle_is_found_and_few_chunks_are_embedded(
    embedder: CountingEmbedder,
) -> None:
    inline = searcher(embedder)
    request = InlineSearch(documents=haystack(), query="what is the vault's password", top_k=3)
    result = await inline.search_inline(request)
    assert NEEDLE in result.passages[0].text
    assert len(result.passages) <= 3
    assert result.num_searched > 1000
    assert embedder.num_texts <= 51


async def test_the_same_question_again_embeds_only_the_question(
    embedder: CountingEmbedder,
) -> None:
    inline = searcher(embedder)
    request = InlineSearch(documents=haystack(), query="vault password")
    first = await inline.search_inline(request)
    num_before = embedder.num_texts
    second = await inline.search_inline(request)
    assert embedder.num_texts == num_before + 1
    assert second.passages == first.passages


async def test_the_cache_keeps_to_its_size(embedder: CountingEmbedder) -> None:
    size = len(haystack()[0].text) * 8
    inline = searcher(embedder, cache_bytes=2 * size + 1000)
    for salt in ("a", "b", "c"):
        await inline.search_inline(InlineSearch(documents=haystack(salt), query="vault"))
    num_before = embedder.num_texts
    await inline.search_inline(InlineSearch(documents=haystack("c"), query="vault"))
    assert embedder.num_texts == num_before + 1, "the last is kept"
    await inline.search_inline(InlineSearch(documents=haystack("a"), query="vault"))
    assert embedder.num_texts > num_before + 2, "the first was dropped"


async def test_a_question_whose_words_do_not_occur_still_looks_by_meaning(
    embedder: CountingEmbedder,
) -> None:
    result = await searcher(embedder).search_inline(
        InlineSearch(documents=haystack(), query="zyzzyva quux")
    )
    assert embedder.num_texts > 25
    assert result.num_searched > 1000


async def test_no_documents_give_an_empty_answer(embedder: CountingEmbedder) -> None:
    empty = [InlineDocument("a", "")]
    for documents in ([], empty):
        result = await searcher(embedder).search_inline(
            InlineSearch(documents=documents, query="anything")
        )
        assert (list(result.passages), result.evidence, result.num_searched) == ([], 0.0, 0)


async def test_a_deadline_that_passes_is_said(embedder: CountingEmbedder) -> None:
    with pytest.raises(SearchUnavailable, match="longer than its"):
        await searcher(embedder).search_inline(
            InlineSearch(documents=haystack(), query="vault", deadline_s=0.001)
        )


def test_the_digest_tells_documents_apart() -> None:
    digests = {
        digest_of([InlineDocument(*pair) for pair in pairs])
        for pairs in (
            [("a", "b")],
            [("ab", "")],
            [("", "ab")],
            [("a", "b"), ("c", "d")],
            [("c", "d"), ("a", "b")],
            [("a", "bcd")],
        )
    }
    assert len(digests) == 6
