"""The worker's rooms put together in one process, real but for the embedder and the index."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

from ingest.api import FileRecord
from ingest.blobs import BlobStore
from ingest.chunking import ChunkConfig
from ingest.database import Database, sqlite_url
from ingest.inline import InlineConfig, InlineSearcher
from ingest.jobs import JobQueue, QueueConfig
from ingest.ledger import Ledger
from ingest.library import LibraryParts, LocalLibrary
from ingest.parsing.parsed import ParseLimits
from ingest.parsing.sandbox import Sandbox
from ingest.pipeline import Pipeline, PipelineConfig, Rooms
from ingest.retry import RetryPolicy
from ingest.texts import CachedTexts, TextStore
from ingest.worker import Worker, WorkerConfig
from retrieval.api import Store
from retrieval.config import SearchConfig
from retrieval.embedder import FakeEmbedder
from retrieval.search import HybridSearcher
from retrieval.stores.memory import MemoryStore
from retrieval.stores.rows import search_text

QUICK = QueueConfig(lease_s=0.3, retry=RetryPolicy(max_attempts=3, base_delay_s=0, max_delay_s=0))
SMALL_CHUNKS = ChunkConfig(chunk_chars=100, parent_chars=250)
LIMIT_BYTES = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class House:
    database: Database
    ledger: Ledger
    queue: JobQueue
    blobs: BlobStore
    texts: TextStore
    store: Store
    rooms: Rooms
    pipeline: Pipeline
    worker: Worker
    library: LocalLibrary

    async def add(self, raw: bytes, filename: str = "notes.txt") -> FileRecord:
        return await self.library.add(filename=filename, purpose="user_data", body=pieces(raw))

    async def settle(self) -> None:
        """Run every job that is due."""
        await self.worker.run_until_idle()


@asynccontextmanager
async def open_house(
    data_dir: Path, *, store: Store | None = None, clock: Callable[[], float] = time.time
) -> AsyncIterator[House]:
    database = await Database.connect(sqlite_url(data_dir / "metadata.db"))
    try:
        async with Sandbox(ParseLimits()) as sandbox:
            yield _house(data_dir, database, sandbox, store or MemoryStore(), clock)
    finally:
        await database.aclose()


def _house(
    data_dir: Path,
    database: Database,
    sandbox: Sandbox,
    store: Store,
    clock: Callable[[], float],
) -> House:
    blobs = BlobStore.in_folder(data_dir / "blobs")
    texts, ledger, embedder = TextStore(blobs), Ledger(database), FakeEmbedder()
    rooms = Rooms(
        ledger=ledger,
        blobs=blobs,
        texts=texts,
        cache=CachedTexts(texts),
        sandbox=sandbox,
        embedder=embedder,
        store=store,
        search_text=search_text,
    )
    queue = JobQueue(database, QUICK, clock=clock, rng=Random(1))
    pipeline = Pipeline(rooms, PipelineConfig(chunks=SMALL_CHUNKS, batch_chunks=4), clock=clock)
    worker = Worker(queue, ledger, pipeline, WorkerConfig(poll_s=0.05, stop_grace_s=0.2))

    async def nudge() -> None:
        worker.nudge()

    library = LocalLibrary(
        LibraryParts(
            ledger=ledger,
            blobs=blobs,
            texts=texts,
            searcher=HybridSearcher(store, embedder, rooms.cache, SearchConfig()),
            inline=InlineSearcher(embedder, search_text, InlineConfig(chunks=SMALL_CHUNKS)),
            nudge=nudge,
            max_file_bytes=LIMIT_BYTES,
        ),
        clock=clock,
    )
    return House(
        database=database,
        ledger=ledger,
        queue=queue,
        blobs=blobs,
        texts=texts,
        store=store,
        rooms=rooms,
        pipeline=pipeline,
        worker=worker,
        library=library,
    )


async def pieces(raw: bytes, size: int = 1 << 16) -> AsyncIterator[bytes]:
    for first in range(0, len(raw), size):
        yield raw[first : first + size]


async def eventually(holds: Callable[[], Awaitable[bool]], *, timeout_s: float = 10.0) -> None:
    """Look again and again; fails the test when it has not come true in time."""
    for _ in range(int(timeout_s / 0.02)):
        if await holds():
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"it did not come true in {timeout_s:g} s")
