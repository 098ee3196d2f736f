"""Speed of embedding and of the whole ingest, what it does to quality, and memory.

    python -m tests.bench.ingest [--documents 64] [--rounds 5]

Real texts cut into documents are uploaded to a worker process, which parses, chunks, embeds and
indexes them; `pipeline_vs_embed` is its chunks a second, from the first upload until the last file
is searchable, over those of the embedder alone on the same chunks. `embed_vs_default` is over
sentence-transformers' `encode` in float32 as it comes. Rounds alternate, and a round is compared
with what was measured right before and after it, since shared cores change their speed by a fifth
within a minute; the median of the rounds counts.
`quality_delta` is Cranfield's nDCG@10 of the fused search minus that with float32 vectors;
`peak_growth` the worker's peak memory after twice the documents over that after the documents.
RINGWAY_TEST_DATA names the data. Prints progress, then one JSON object on the last line.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path, PurePath
from random import Random
from statistics import mean, median

import sentence_transformers
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ingest.api import FileStatus
from ingest.chunking import ChunkConfig, ChunkSource, chunk
from ingest.library import LocalLibrary
from retrieval.api import EmbeddedChunk, Embedder, SearchRequest
from retrieval.config import EmbedderConfig, EmbedderDtype
from retrieval.embedding.weights import locate
from retrieval.stores.memory import MemoryStore
from retrieval.stores.rows import search_text
from retrieval.wiring import load_embedder
from tests.bench.judged_sets import cranfield
from tests.bench.kept_vectors import KeptVectors
from tests.bench.retrieval import index, measure
from tests.bench.worker_process import WorkerProcess, running_worker

DOCUMENT_CHARS = 20_000
SAMPLE_CHUNKS = 256
UPLOADS_AT_A_TIME = 4
POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Document:
    filename: str
    text: str


async def main() -> None:
    args = arguments()
    data = Path(os.environ.get("RINGWAY_TEST_DATA", "../shared/data")) / "retrieval"
    if not data.is_dir():
        sys.exit(f"no judged sets at {data}; set RINGWAY_TEST_DATA")
    twice = documents_of(data / "chunking", 2 * args.documents)
    documents = twice[: args.documents]
    texts = [text for document in documents for text in chunk_texts(document)]
    print(f"{len(documents)} documents, {len(texts)} chunks", flush=True)
    embedder = await load_embedder()
    default = await asyncio.to_thread(default_encoder)
    sample = Random(1).sample(texts, min(SAMPLE_CHUNKS, len(texts)))
    rates = Rates()
    await embedder.embed(texts)
    await rates.take("default", len(sample), default(sample))
    for _ in range(args.rounds):
        await rates.take("embed", len(sample), embedder.embed(sample))
        await rates.take("default", len(sample), default(sample))
    await rates.take("embed all", len(texts), embedder.embed(texts))
    for _ in range(args.rounds):
        await pipeline(documents, len(texts), rates)
        await rates.take("embed all", len(texts), embedder.embed(texts))
    peak, peak_of_twice = await peaks(documents, twice[args.documents :])
    print(f"peak: {peak >> 20} MiB, of twice as many documents {peak_of_twice >> 20} MiB")
    figures = {
        "embed_vs_default": rates.ratio("embed", "default"),
        "pipeline_vs_embed": rates.ratio("pipeline", "embed all"),
        "quality_delta": await quality_delta(embedder, data / "cranfield"),
        "peak_growth": peak_of_twice / peak,
    }
    print(json.dumps({name: round(value, 4) for name, value in figures.items()}))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    return parser.parse_args()


def documents_of(folder: Path, num_documents: int) -> list[Document]:
    """Runs of the corpora, cut at line ends; the first of every corpus, then the second, ..."""
    runs = [
        [(path.stem, number, text[first : first + DOCUMENT_CHARS]) for number, first in starts]
        for path in sorted(folder.glob("*.md"))
        for text in [path.read_text(encoding="utf-8")]
        for starts in [enumerate(range(0, len(text), DOCUMENT_CHARS))]
    ]
    spread = sorted((run for each in runs for run in each), key=lambda run: (run[1], run[0]))
    return [Document(f"{name}-{number}.txt", text) for name, number, text in spread[:num_documents]]


def chunk_texts(document: Document) -> list[str]:
    """What the pipeline embeds for the document."""
    source = ChunkSource(
        document_id="bench",
        generation="bench",
        text=document.text,
        title=PurePath(document.filename).stem,
    )
    return [search_text(each) for each in chunk(source, ChunkConfig())]


def default_encoder() -> Callable[[Sequence[str]], Awaitable[object]]:
    model = sentence_transformers.SentenceTransformer(str(locate(None)[0]), device="cpu")

    async def encode(texts: Sequence[str]) -> object:
        return await asyncio.to_thread(model.encode, list(texts))

    return encode


class Rates:
    """Things a second, by name, in the order in which they were measured."""

    def __init__(self) -> None:
        self._taken: defaultdict[str, list[float]] = defaultdict(list)

    async def take(self, name: str, num_things: int, work: Awaitable[object]) -> None:
        started = time.perf_counter()
        await work
        rate = num_things / (time.perf_counter() - started)
        self._taken[name].append(rate)
        load = os.getloadavg()[0]
        print(f"{name}: {rate:.1f} chunks a second (load {load:.1f})", flush=True)

    def ratio(self, name: str, peer: str) -> float:
        """The median over rounds of the rate to its peer's mean before and after it."""
        around = map(mean, pairwise(self._taken[peer]))
        ratios = [rate / peers for rate, peers in zip(self._taken[name], around, strict=True)]
        print(f"{name} / {peer}:", *(f"{ratio:.3f}" for ratio in ratios), flush=True)
        return median(ratios)


async def pipeline(documents: Sequence[Document], num_chunks: int, rates: Rates) -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with running_worker(Path(folder)) as worker:
            await rates.take("pipeline", num_chunks, ingested(worker.library, documents))
            await check(worker, documents)


async def peaks(documents: Sequence[Document], more: Sequence[Document]) -> tuple[int, int]:
    """The worker's peak memory after the documents, and after as many more.

    The first documents fill all lanes, caches and the allocator's arenas: what comes later must
    fit into the same memory.
    """
    with tempfile.TemporaryDirectory() as folder:
        async with running_worker(Path(folder)) as worker:
            await ingested(worker.library, documents)
            peak = worker.peak_bytes()
            await ingested(worker.library, more)
            return peak, worker.peak_bytes()


async def ingested(library: LocalLibrary, documents: Sequence[Document]) -> None:
    """Upload all and wait until all are searchable."""
    waiting = asyncio.Semaphore(UPLOADS_AT_A_TIME)

    async def add(document: Document) -> str:
        async with waiting:
            body = pieces(document.text.encode())
            record = await library.add(filename=document.filename, purpose="user_data", body=body)
            return record.id

    with progress() as bar:
        task = bar.add_task("ingest", total=len(documents))
        for file_id in await asyncio.gather(*map(add, documents)):
            await processed(library, file_id)
            bar.advance(task)


async def pieces(raw: bytes) -> AsyncIterator[bytes]:
    yield raw


async def processed(library: LocalLibrary, file_id: str) -> None:
    while (record := await library.get(file_id)).status is not FileStatus.PROCESSED:
        if record.status is FileStatus.ERROR:
            raise RuntimeError(f"{record.filename}: {record.cause}")
        await asyncio.sleep(POLL_S)


def progress() -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True)


async def check(worker: WorkerProcess, documents: Sequence[Document]) -> None:
    """Of the last document, a sentence is found."""
    words = " ".join(documents[-1].text.split()[200:230])
    found = await worker.library.search(SearchRequest(query=words, document_ids=None))
    if not any(words[:40] in " ".join(passage.text.split()) for passage in found.passages):
        raise RuntimeError("a document that was ingested is not found")


async def quality_delta(embedder: Embedder, folder: Path) -> float:
    exact = await load_embedder(EmbedderConfig(dtype=EmbedderDtype.FLOAT32))
    kept = Path(tempfile.gettempdir()) / "ringway-bench-float32"
    theirs = await ndcg(KeptVectors.in_folder(kept, exact), folder)
    return await ndcg(embedder, folder) - theirs


async def ndcg(embedder: Embedder, folder: Path) -> float:
    judged, store = cranfield(folder), MemoryStore()
    rows: list[EmbeddedChunk] = await index(store, embedder, judged)
    assert rows
    return (await measure(store, embedder, judged))["cranfield_ndcg10"]


if __name__ == "__main__":
    asyncio.run(main())
