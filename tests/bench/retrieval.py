"""Retrieval quality on four judged sets and speed, one configuration for all: on every store.

    python -m tests.bench.retrieval [--stores lancedb,opensearch]

OpenSearch is measured when RINGWAY_TEST_OPENSEARCH names one; RINGWAY_TEST_DATA names the data.
Embeddings of the sets are kept by digest in a temporary folder, so that a second run is quick.
Prints progress, then one JSON object on the last line.
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from retrieval.analyzer import analyze_joined
from retrieval.api import Chunk, EmbeddedChunk, Embedder, SearchRequest, Store, StoreQuery
from retrieval.config import OpenSearchConfig, SearchConfig
from retrieval.fusion import fuse
from retrieval.search import HybridSearcher
from retrieval.stores.memory import MemoryStore
from retrieval.stores.opensearch.cluster import Cluster
from retrieval.stores.opensearch.versions import Versions
from retrieval.stores.rows import search_text
from retrieval.wiring import load_embedder, open_store
from tests.bench.judged_sets import JudgedSet, Question, load_all
from tests.bench.kept_vectors import KeptVectors

BATCH = 64
SPEED_CHUNKS = 10_000
SPEED_DOCUMENT_CHUNKS = 100
SPEED_SEARCHES = 200
NODE = os.environ.get("RINGWAY_TEST_OPENSEARCH", "")
AGREEMENT = 0.02
"""How far LanceDB and OpenSearch may be apart in any figure of quality."""

OpenStore = Callable[[Embedder], AbstractAsyncContextManager[Store]]


@asynccontextmanager
async def lancedb(embedder: Embedder) -> AsyncIterator[Store]:
    with tempfile.TemporaryDirectory() as folder:
        store = await open_store(Path(folder), embedder)
        yield store
        await store.aclose()


@asynccontextmanager
async def opensearch(embedder: Embedder) -> AsyncIterator[Store]:
    config = OpenSearchConfig(url=NODE, alias=f"bench-{uuid.uuid4().hex[:12]}")
    store = await open_store(config, embedder)
    yield store
    await store.aclose()
    cluster = Cluster.connect(config)
    versions = Versions(cluster, config.alias)
    await versions.drop(versions.name(1))
    await cluster.aclose()


@asynccontextmanager
async def memory(_embedder: Embedder) -> AsyncIterator[Store]:
    yield MemoryStore()


STORES: Mapping[str, OpenStore] = {"lancedb": lancedb, "opensearch": opensearch, "memory": memory}


async def main() -> None:
    data = Path(os.environ.get("RINGWAY_TEST_DATA", "../shared/data"))
    if not (data / "retrieval").is_dir():
        sys.exit(f"no judged sets at {data / 'retrieval'}; set RINGWAY_TEST_DATA")
    names = chosen_stores()
    embedder = await load_embedder()
    kept = KeptVectors.in_folder(Path(tempfile.gettempdir()) / "ringway-bench-vectors", embedder)
    sets = load_all(data)
    figures = {name: await figures_of(STORES[name], name, kept, embedder, sets) for name in names}
    print_agreement(figures)
    print(json.dumps(figures))


def chosen_stores() -> list[str]:
    available = [name for name in ("lancedb", "opensearch") if name != "opensearch" or NODE]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stores", default=",".join(available), help="of " + ", ".join(STORES))
    names = str(parser.parse_args().stores).split(",")
    if unknown := set(names) - STORES.keys():
        sys.exit(f"no such store: {', '.join(sorted(unknown))}")
    if "opensearch" in names and not NODE:
        sys.exit("RINGWAY_TEST_OPENSEARCH names no OpenSearch to measure")
    return names


async def figures_of(
    make: OpenStore, name: str, kept: KeptVectors, embedder: Embedder, sets: Sequence[JudgedSet]
) -> dict[str, float]:
    print(f"{name}:", flush=True)
    figures: dict[str, float] = {}
    rows: list[EmbeddedChunk] = []
    for judged in sets:
        async with make(kept) as store:
            rows += await index(store, kept, judged)
            figures |= await measure(store, kept, judged)
    async with make(embedder) as store:
        figures |= await speed(store, embedder, rows)
    return {name: round(value, 4) for name, value in figures.items()}


def print_agreement(figures: Mapping[str, Mapping[str, float]]) -> None:
    if {"lancedb", "opensearch"} <= figures.keys():
        apart = max(
            abs(value - figures["opensearch"][name])
            for name, value in figures["lancedb"].items()
            if not name.endswith("_ms")
        )
        verdict = "within" if apart <= AGREEMENT else "NOT within"
        print(f"LanceDB and OpenSearch differ by {apart:.4f} at most, {verdict} {AGREEMENT}")


async def index(store: Store, embedder: Embedder, judged: JudgedSet) -> list[EmbeddedChunk]:
    started = time.monotonic()
    rows: list[EmbeddedChunk] = []
    for first in range(0, len(judged.chunks), BATCH):
        batch = judged.chunks[first : first + BATCH]
        vectors = await embedder.embed([search_text(chunk) for chunk in batch])
        rows += map(EmbeddedChunk, batch, vectors)
        await store.write(rows[first:])
        print(f"\r{judged.name}: {len(rows)}/{len(judged.chunks)} chunks", end="", flush=True)
    print(f", {len(rows) / (time.monotonic() - started):.0f} a second", flush=True)
    return rows


async def measure(store: Store, embedder: Embedder, judged: JudgedSet) -> dict[str, float]:
    vectors = await embedder.embed([question.text for question in judged.questions])
    totals: defaultdict[str, list[float]] = defaultdict(list)
    for question, vector in zip(judged.questions, vectors, strict=True):
        ranking = await rank(store, judged, question, vector)
        for name, value in question.measure(ranking).items():
            totals[name].append(value)
    means = {name: statistics.fmean(values) for name, values in totals.items()}
    print(judged.name, {name: round(value, 4) for name, value in means.items()}, flush=True)
    return means


async def rank(
    store: Store, judged: JudgedSet, question: Question, vector: Sequence[float]
) -> list[Chunk]:
    """As the searcher ranks; where chunks overlap, the passages that a reader would get."""
    config = SearchConfig()
    candidates = await store.search(
        StoreQuery(
            terms=analyze_joined(question.text),
            vector=vector,
            document_ids=question.document_ids,
            num_candidates=config.num_candidates,
        )
    )
    hits = fuse(candidates, config.fusion, vector)
    if judged.name != "chunking":
        return [hit.chunk for hit in hits]
    taken: list[Chunk] = []
    for hit in hits:
        trial = [*taken, hit.chunk]
        if len(taken) < 5 and adds_text(taken, hit.chunk, config.passages.max_overlap):
            taken = trial
    return taken


def adds_text(taken: Sequence[Chunk], chunk: Chunk, max_overlap: float) -> bool:
    read = {place for one in taken for place in range(one.start, one.stop)}
    shared = sum(place in read for place in range(chunk.start, chunk.stop))
    return shared <= max_overlap * (chunk.stop - chunk.start)


class Texts:
    """A `TextSource` over texts in memory."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = texts

    async def text(self, document_id: str) -> str | None:
        return self._texts.get(document_id)


async def speed(
    store: Store, embedder: Embedder, rows: Sequence[EmbeddedChunk]
) -> dict[str, float]:
    """Whole searches over 10,000 chunks, the query's embedding and the reading included."""
    many = [rows[number % len(rows)] for number in range(SPEED_CHUNKS)]
    texts: dict[str, str] = {}
    for first in range(0, len(many), SPEED_DOCUMENT_CHUNKS):
        document_id = f"speed{first}"
        document = many[first : first + SPEED_DOCUMENT_CHUNKS]
        texts[document_id] = "\n".join(row.chunk.text for row in document)
        await store.write(placed(document_id, document))
    searcher = HybridSearcher(store, embedder, Texts(texts), SearchConfig())
    seconds = []
    for number in range(SPEED_SEARCHES):
        query = " ".join(many[number * 37].chunk.text.split()[:12])
        result = await searcher.search(
            SearchRequest(query=query, document_ids=list(texts), deadline_s=60)
        )
        assert result.num_searched == SPEED_CHUNKS
        seconds.append(result.seconds)
    cuts = statistics.quantiles(seconds, n=100)
    print(f"speed: p50 {cuts[49] * 1000:.1f} ms, p99 {cuts[98] * 1000:.1f} ms", flush=True)
    return {"search_p50_ms": cuts[49] * 1000}


def placed(document_id: str, rows: Sequence[EmbeddedChunk]) -> list[EmbeddedChunk]:
    """The chunks' texts, one after the other, as one document."""
    start = 0
    moved = []
    for row in rows:
        text = row.chunk.text
        chunk = Chunk(
            id=f"{document_id}:{start}",
            document_id=document_id,
            generation="bench",
            start=start,
            stop=start + len(text),
            parent_start=start,
            parent_stop=start + len(text),
            text=text,
        )
        moved.append(EmbeddedChunk(chunk, row.vector))
        start += len(text) + 1
    return moved


if __name__ == "__main__":
    asyncio.run(main())
