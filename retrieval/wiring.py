"""Builds retrieval's implementations; the only module that chooses which."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from retrieval.api import Embedder, Reranker, Searcher, Store, TextSource
from retrieval.config import (
    EmbedderConfig,
    OpenSearchConfig,
    SearchConfig,
    StoreConfig,
)
from retrieval.migration import Migration, Progress
from retrieval.search import HybridSearcher

Place = Path | OpenSearchConfig
"""Where the index is: a folder of this machine (LanceDB), or an OpenSearch."""


async def load_embedder(config: EmbedderConfig | None = None) -> Embedder:
    """Load the local embedding model (seconds). Raises ValueError when it cannot be used."""
    from retrieval.embedder import LocalEmbedder

    return await LocalEmbedder.load(config)


async def load_reranker(folder: str) -> Reranker:
    """Load a local cross-encoder (seconds). Raises ValueError when it cannot be used."""
    from retrieval.reranker import CrossEncoderReranker

    return await CrossEncoderReranker.load(Path(folder))


async def open_store(place: Place, embedder: Embedder, config: StoreConfig | None = None) -> Store:
    """Open or create the index; `config` is for the embedded one. The caller closes it.

    Raises IndexMismatch, SearchUnavailable (OpenSearch does not answer) or ValueError.
    """
    if isinstance(place, OpenSearchConfig):
        from retrieval.stores.opensearch.store import OpenSearchStore

        return await OpenSearchStore.open(embedder, place)
    from retrieval.stores.lance import LanceStore

    return await LanceStore.open(place, embedder, config)


async def migrate_index(
    place: Place,
    embedder: Embedder,
    progress: Progress,
    *,
    restart: bool = False,
    writers_stopped: bool = False,
) -> Migration:
    """Re-embed every chunk into a new index version and switch to it.

    Nothing may write to a folder meanwhile; for OpenSearch see its module. Raises
    MigrationRefused or SearchUnavailable, after which the old index is as it was.
    """
    if isinstance(place, OpenSearchConfig):
        from retrieval.stores.opensearch.migration import OpenSearchMigration

        migration = OpenSearchMigration(
            place, embedder, progress, restart=restart, writers_stopped=writers_stopped
        )
        return await migration.run()
    from retrieval.stores.lance_migration import migrate_folder

    return await migrate_folder(place, embedder, progress)


def make_searcher(
    store: Store,
    embedder: Embedder,
    texts: TextSource,
    config: SearchConfig | None = None,
    *,
    reranker: Reranker | None = None,
) -> Searcher:
    return HybridSearcher(store, embedder, texts, config or SearchConfig(), reranker=reranker)


@asynccontextmanager
async def open_searcher(
    place: Place, embedder: Embedder, texts: TextSource, config: SearchConfig | None = None
) -> AsyncIterator[Searcher]:
    """A searcher over an index, which is closed on leaving."""
    store = await open_store(place, embedder)
    try:
        yield make_searcher(store, embedder, texts, config)
    finally:
        await store.aclose()
