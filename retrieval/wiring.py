"""Builds retrieval's implementations; the only module that chooses which."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from retrieval.api import Embedder, Searcher, Store, TextSource
from retrieval.config import EmbedderConfig, SearchConfig, StoreConfig
from retrieval.search import HybridSearcher


async def load_embedder(config: EmbedderConfig | None = None) -> Embedder:
    """Load the local embedding model (seconds). Raises ValueError when it cannot be used."""
    from retrieval.embedder import LocalEmbedder

    return await LocalEmbedder.load(config)


async def open_store(
    index_dir: Path, embedder: Embedder, config: StoreConfig | None = None
) -> Store:
    """Open or create the embedded index. Raises IndexMismatch. The caller closes it."""
    from retrieval.stores.lance import LanceStore

    return await LanceStore.open(index_dir, embedder, config)


def make_searcher(
    store: Store, embedder: Embedder, texts: TextSource, config: SearchConfig | None = None
) -> Searcher:
    return HybridSearcher(store, embedder, texts, config or SearchConfig())


@asynccontextmanager
async def open_searcher(
    index_dir: Path, embedder: Embedder, texts: TextSource, config: SearchConfig | None = None
) -> AsyncIterator[Searcher]:
    """A searcher over the embedded index, which is closed on leaving."""
    store = await open_store(index_dir, embedder)
    try:
        yield make_searcher(store, embedder, texts, config)
    finally:
        await store.aclose()
