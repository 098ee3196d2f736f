"""Every implementation of `Store`, opened for one test each."""

import os
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from retrieval.api import Store
from retrieval.config import KnnEngine, OpenSearchConfig, OpenSearchKind, StoreConfig
from retrieval.embedder import FakeEmbedder
from retrieval.stores.lance import LanceStore
from retrieval.stores.memory import MemoryStore
from retrieval.stores.opensearch.store import OpenSearchStore
from tests.retrieval.stores.opensearch.strict_proxy import strict_proxy

EMBEDDER = FakeEmbedder()
OpenStore = Callable[[Path], AbstractAsyncContextManager[Store]]
NODE = os.environ.get("RINGWAY_TEST_OPENSEARCH", "")

needs_node = pytest.mark.skipif(not NODE, reason="RINGWAY_TEST_OPENSEARCH names no OpenSearch")


@asynccontextmanager
async def memory(_folder: Path) -> AsyncIterator[Store]:
    yield MemoryStore()


@asynccontextmanager
async def lance(folder: Path) -> AsyncIterator[Store]:
    store = await LanceStore.open(folder / "index", EMBEDDER)
    yield store
    await store.aclose()


@asynccontextmanager
async def lance_that_folds_often(folder: Path) -> AsyncIterator[Store]:
    config = StoreConfig(optimize_share=0.0, optimize_commits=2)
    store = await LanceStore.open(folder / "index", EMBEDDER, config)
    yield store
    await store.aclose()


@asynccontextmanager
async def opensearch(_folder: Path) -> AsyncIterator[Store]:
    async with own_alias() as alias:
        config = OpenSearchConfig(url=NODE, alias=alias)
        store = await OpenSearchStore.open(EMBEDDER, config)
        yield store
        await store.aclose()


@asynccontextmanager
async def opensearch_strict(_folder: Path) -> AsyncIterator[Store]:
    async with own_alias() as alias, strict_proxy(NODE) as url:
        store = await OpenSearchStore.open(EMBEDDER, serverless_config(url, alias))
        yield store
        await store.aclose()


def serverless_config(url: str, alias: str) -> OpenSearchConfig:
    return OpenSearchConfig(
        url=url,
        alias=alias,
        kind=OpenSearchKind.SERVERLESS,
        engine=KnnEngine.FAISS,
        aws_region="eu-central-1",
        visible_within_s=8.0,
    )


@asynccontextmanager
async def own_alias() -> AsyncIterator[str]:
    """A name that no other test has; its indices are removed on leaving."""
    alias = f"t-{uuid.uuid4().hex[:12]}"
    try:
        yield alias
    finally:
        async with aiohttp.ClientSession(NODE) as session:
            async with session.get(f"/_cat/indices/{alias}-*?h=index&format=json") as answer:
                found = [row["index"] for row in await answer.json()]
            for index in found:
                async with session.delete(f"/{index}") as answer:
                    await answer.read()


ON_NODE = [opensearch, opensearch_strict]
ALL = [
    memory,
    lance,
    lance_that_folds_often,
    *(pytest.param(make, marks=[pytest.mark.services, needs_node]) for make in ON_NODE),
]
EMBEDDED_AND_NODE = ALL[1:]
"""Those that are held to the oracle."""

ONE_OF_EACH_KIND = [ALL[0], ALL[1], ALL[3]]
"""For what takes long."""
