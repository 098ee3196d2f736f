"""Vectors with exact counts: the real tokenizer, and the refusal of what would be cut."""

import pytest

from ingest.embedding import CountingEmbedder
from ingest.embeddings_api import TextTooLong
from ingest.tokens import EmbedderTokens
from retrieval.embedder import FakeEmbedder


@pytest.fixture
def embeddings() -> CountingEmbedder:
    return CountingEmbedder(FakeEmbedder(identity="mini@abc"), EmbedderTokens.load(None))


async def test_tokens_are_counted_as_the_model_reads_them(embeddings: CountingEmbedder) -> None:
    found = await embeddings.embed(["hello world", "", "東京 größe 👩‍👧"])
    assert list(found.num_tokens[:2]) == [4, 2]
    assert found.num_tokens[2] > 4
    assert [len(vector) for vector in found.vectors] == [64, 64, 64]
    assert (await embeddings.facts()).model == "mini"


async def test_a_text_of_the_whole_window_is_read_and_one_word_more_is_refused(
    embeddings: CountingEmbedder,
) -> None:
    whole = " ".join(["word"] * 254)
    assert list((await embeddings.embed([whole])).num_tokens) == [256]
    with pytest.raises(TextTooLong) as refused:
        await embeddings.embed(["fine", whole + " word"])
    assert (refused.value.index, refused.value.num_tokens, refused.value.limit) == (1, 257, 256)
