"""`Embeddings` in memory for other packages' tests: one token per word and two special ones."""

from collections.abc import Sequence

from ingest.embedding import CountingEmbedder
from retrieval.embedder import FakeEmbedder

SPECIAL_TOKENS = 2


class WordCounts:
    def count(self, texts: Sequence[str]) -> Sequence[int]:
        return [len(text.split()) + SPECIAL_TOKENS for text in texts]


def fake_embeddings(*, model: str = "fake-embedder", dimension: int = 64) -> CountingEmbedder:
    return CountingEmbedder(FakeEmbedder(identity=f"{model}@1", dimension=dimension), WordCounts())
