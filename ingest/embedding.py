"""Vectors with exact counts, over the embedder of this process. Knows no index and no HTTP."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from ingest.embeddings_api import Embedded, EmbedderFacts, TextTooLong
from retrieval.api import Embedder


class TokenCounts(Protocol):
    def count(self, texts: Sequence[str]) -> Sequence[int]:
        """Tokens that the embedder reads for each text, special tokens included."""
        ...


class CountingEmbedder:
    """`Embeddings` over an `Embedder` and its tokenizer."""

    def __init__(self, embedder: Embedder, tokens: TokenCounts) -> None:
        self._embedder = embedder
        self._tokens = tokens

    async def facts(self) -> EmbedderFacts:
        return EmbedderFacts(
            model=self._embedder.identity.partition("@")[0],
            dimension=self._embedder.dimension,
            max_tokens=self._embedder.window_tokens,
        )

    async def embed(self, texts: Sequence[str]) -> Embedded:
        num_tokens = await asyncio.to_thread(self._tokens.count, texts)
        limit = self._embedder.window_tokens
        for index, num in enumerate(num_tokens):
            if num > limit:
                raise TextTooLong(index=index, num_tokens=num, limit=limit)
        return Embedded(vectors=await self._embedder.embed(texts), num_tokens=num_tokens)
