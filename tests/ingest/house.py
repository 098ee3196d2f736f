"""The worker's rooms put together in one process, real but for the embedder and the index."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

from ingest.api import FileRecord, PermanentError
from ingest.blobs import BlobStore
from ingest.chunking import ChunkConfig
from ingest.database import Database, sqlite_url
from ingest.handler import JobHandler
from ingest.inline import InlineConfig, InlineSearcher
from ingest.jobs import JobQueue, QueueConfig
from ingest.ledger import Ledger
from ingest.library import LibraryParts, LocalLibrary
from ingest.parsing.parsed import Parsed, ParseLimits
from ingest.parsing.sandbox import Sandbox
from ingest.pipeline import Pipeline, PipelineConfig, Rooms
from ingest.placements import Placements
from ingest.placing import Placer, PlacingRooms
from ingest.retry import RetryPolicy
from ingest.stores_ledger import StoresLedger
from ingest.sweep import SweepConfig, Sweeper, SweepRooms
from ingest.texts import CachedTexts, TextStore
from ingest.uploads_ledger import UploadsLedger
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
    placements: Placements
    sweep_rooms: SweepRooms
    sweeper: Sweeper

    async def add(self, raw: bytes, filename: str = "notes.txt") -> FileRecord:
        return await self.library.add(filename=filename, purpose="user_data", body=pieces(raw))

    async def settle(self) -> None:
        """Run every job that is due."""
        await self.worker.run_until_idle()


class PlainSandbox(Sandbox):
    """Reads UTF-8 in this process: a second less for tests that are not about parsing."""

    def __init__(self) -> None:
        super().__init__(ParseLimits())

    async def __aenter__(self) -> "PlainSandbox":
        return self

    async def read(self, path: Path, filename: str) -> Parsed:
        raw = await asyncio.to_thread(path.read_bytes)
        if not raw:
            raise PermanentError("The file is empty (0 bytes).")
        return Parsed(text=raw.decode())


def word_spans(text: str) -> list[tuple[int, int]]:
    """Tokens for tests: words."""
    return [match.span() for match in re.finditer(r"\S+", text)]


@asynccontextmanager
async def open_house(
    data_dir: Path,
    *,
    store: Store | None = None,
    blobs: BlobStore | None = None,
    url: str | None = None,
    sandbox: Sandbox | None = None,
    clock: Callable[[], float] = time.time,
) -> AsyncIterator[House]:
    database = await Database.connect(url or sqlite_url(data_dir / "metadata.db"))
    blobs = blobs or BlobStore.in_folder(data_dir / "blobs")
    try:
        async with sandbox or Sandbox(ParseLimits()) as opened:
            yield _house(blobs, database, opened, store or MemoryStore(), clock)
    finally:
        await database.aclose()


def _house(
    blobs: BlobStore,
    database: Database,
    sandbox: Sandbox,
    store: Store,
    clock: Callable[[], float],
) -> House:
    texts, ledger = TextStore(blobs), Ledger(database, clock=clock)
    rooms = Rooms(
        ledger=ledger,
        blobs=blobs,
        texts=texts,
        cache=CachedTexts(texts),
        sandbox=sandbox,
        embedder=FakeEmbedder(),
        store=store,
        search_text=search_text,
    )
    queue = JobQueue(database, QUICK, clock=clock, rng=Random(1))
    pipeline = Pipeline(rooms, PipelineConfig(chunks=SMALL_CHUNKS, batch_chunks=4), clock=clock)
    placements = Placements(database, clock=clock)
    uploads = UploadsLedger(database, clock=clock)
    handler = handler_of(rooms, pipeline, placements)
    worker = Worker(queue, handler, WorkerConfig(poll_s=0.05, stop_grace_s=0.2))
    sweep_rooms = SweepRooms(
        ledger=ledger, placements=placements, uploads=uploads, queue=queue, blobs=blobs
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
        library=_library(rooms, database, worker, clock),
        placements=placements,
        sweep_rooms=sweep_rooms,
        sweeper=Sweeper(sweep_rooms, SweepConfig(), clock=clock),
    )


def _library(
    rooms: Rooms, database: Database, worker: Worker, clock: Callable[[], float]
) -> LocalLibrary:
    async def nudge() -> None:
        worker.nudge()

    parts = LibraryParts(
        ledger=rooms.ledger,
        stores=StoresLedger(database, clock=clock),
        uploads=UploadsLedger(database, clock=clock),
        blobs=rooms.blobs,
        texts=rooms.texts,
        searcher=HybridSearcher(rooms.store, rooms.embedder, rooms.cache, SearchConfig()),
        inline=InlineSearcher(rooms.embedder, search_text, InlineConfig(chunks=SMALL_CHUNKS)),
        nudge=nudge,
        max_file_bytes=LIMIT_BYTES,
    )
    return LocalLibrary(parts, clock=clock)


def handler_of(rooms: Rooms, pipeline: Pipeline, placements: Placements) -> JobHandler:
    placing = PlacingRooms(
        ledger=rooms.ledger,
        placements=placements,
        blobs=rooms.blobs,
        texts=rooms.texts,
        indexer=pipeline.indexer,
        spans=word_spans,
    )
    return JobHandler(rooms.ledger, pipeline, Placer(placing))


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
