"""Retrieval quality on four judged sets, one configuration: `python -m tests.bench.retrieval`.

Prints progress, then one JSON object on the last line. RINGWAY_TEST_DATA names the data.
"""

import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from retrieval.analyzer import analyze_joined
from retrieval.api import Chunk, EmbeddedChunk, Embedder, SearchRequest, Store, StoreQuery
from retrieval.config import SearchConfig
from retrieval.fusion import fuse
from retrieval.search import HybridSearcher
from retrieval.stores.rows import search_text
from retrieval.wiring import load_embedder, open_store
from tests.bench.judged_sets import JudgedSet, Question, load_all

BATCH = 64
SPEED_CHUNKS = 10_000
SPEED_DOCUMENT_CHUNKS = 100
SPEED_SEARCHES = 200


async def main() -> None:
    data = Path(os.environ.get("RINGWAY_TEST_DATA", "../shared/data"))
    if not (data / "retrieval").is_dir():
        sys.exit(f"no judged sets at {data / 'retrieval'}; set RINGWAY_TEST_DATA")
    embedder = await load_embedder()
    figures: dict[str, float] = {}
    rows: list[EmbeddedChunk] = []
    with tempfile.TemporaryDirectory() as folder:
        for judged in load_all(data):
            store = await open_store(Path(folder) / judged.name, embedder)
            rows += await index(store, embedder, judged)
            figures |= await measure(store, embedder, judged)
            await store.aclose()
        figures |= await speed(Path(folder) / "speed", embedder, rows)
    rounded = {name: round(value, 4) for name, value in figures.items()}
    print(json.dumps({"lancedb": rounded}))


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
    folder: Path, embedder: Embedder, rows: Sequence[EmbeddedChunk]
) -> dict[str, float]:
    """Whole searches over 10,000 chunks, the query's embedding and the reading included."""
    many = [rows[number % len(rows)] for number in range(SPEED_CHUNKS)]
    store = await open_store(folder, embedder)
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
    await store.aclose()
    cuts = statistics.quantiles(seconds, n=100)
    print(f"speed: p50 {cuts[49] * 1000:.1f} ms, p99 {cuts[98] * 1000:.1f} ms", flush=True)
    return {"search_p50_ms": cuts[49] * 1000, "search_p99_ms": cuts[98] * 1000}


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
