"""Builds and runs the worker process: models, index, jobs and their HTTP face."""

import asyncio
import fcntl
import logging
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from pathlib import Path
from random import Random

from starlette.types import ASGIApp

from ingest.blobs import BlobStore
from ingest.chunking import ChunkConfig
from ingest.database import Database
from ingest.embedding import CountingEmbedder
from ingest.face import Services, create_app
from ingest.handler import JobHandler
from ingest.inline import InlineConfig, InlineSearcher
from ingest.jobs import JobQueue, QueueConfig
from ingest.joining import JoiningEmbedder
from ingest.ledger import Ledger
from ingest.parsing.choice import parser_module
from ingest.parsing.parsed import ParseLimits
from ingest.parsing.sandbox import Sandbox
from ingest.pipeline import Pipeline, PipelineConfig, Rooms
from ingest.placements import Placements
from ingest.placing import Placer, PlacingRooms
from ingest.retry import RetryPolicy
from ingest.settings import IngestSettings
from ingest.sweep import SweepConfig, Sweeper, SweepRooms
from ingest.texts import CachedTexts, TextStore
from ingest.tokens import EmbedderTokens
from ingest.uploads_ledger import UploadsLedger
from ingest.worker import Worker, WorkerConfig
from retrieval.config import EmbedderConfig
from retrieval.migration import Migration, Progress
from retrieval.stores.rows import search_text
from retrieval.wiring import (
    load_embedder,
    load_reranker,
    make_searcher,
    migrate_index,
    open_store,
)

logger = logging.getLogger(__name__)

Serve = Callable[[ASGIApp], Coroutine[None, None, None]]
"""Hosts an app until the process is told to stop."""

SWITCH_INTERVAL_S = 0.0001
"""How long a thread may keep the interpreter from another that wants it. An embedder's lane takes
it back a hundred times a batch; at Python's 5 ms the lanes stand still whenever another thread
cuts or stems texts, which took a tenth of the embedder's time."""


class DataDirBusy(ValueError):
    """Another worker writes to this data directory."""


async def serve_ingest(settings: IngestSettings, serve: Serve) -> None:
    """Run the worker while `serve` serves its face; `serve` returns when it is told to stop.

    Raises DataDirBusy, or ValueError for a parser that is not installed, before anything is
    started. The face answers at once; `/health/ready` is 503 until the models are loaded.
    """
    parser_module(settings.parser)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    with _only_worker(settings):
        database = await Database.connect(settings.sql_url)
        try:
            await _run(settings, database, serve)
        finally:
            await database.aclose()


async def _run(settings: IngestSettings, database: Database, serve: Serve) -> None:
    nudged = asyncio.Event()
    queue = JobQueue(database, _queue_config(settings), clock=time.time, rng=Random())
    services = Services(nudge=nudged.set, depth=queue.depth)
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(serve(create_app(services)))
        try:
            async with _built_worker(settings, database, queue, services) as (worker, sweeper):
                services.nudge = worker.nudge
                working = group.create_task(worker.run())
                sweeping = group.create_task(sweeper.run())
                await asyncio.wait((serving, working), return_when=asyncio.FIRST_COMPLETED)
                sweeping.cancel()
                worker.stop()
                await working
        finally:
            serving.cancel()


@asynccontextmanager
async def _built_worker(
    settings: IngestSettings, database: Database, queue: JobQueue, services: Services
) -> AsyncIterator[tuple[Worker, Sweeper]]:
    embedder = await load_embedder(EmbedderConfig(model=settings.embedder))
    store = await open_store(settings.index_place, embedder)
    blobs = await BlobStore.connect(settings.blobs)
    texts = TextStore(blobs)
    cache = CachedTexts(texts)
    chunks = ChunkConfig(chunk_chars=settings.chunk_chars, parent_chars=settings.parent_chars)
    try:
        async with open_sandbox(settings) as sandbox:
            rooms = Rooms(
                ledger=Ledger(database),
                blobs=blobs,
                texts=texts,
                cache=cache,
                sandbox=sandbox,
                embedder=JoiningEmbedder(embedder),
                store=store,
                search_text=search_text,
            )
            pipeline = Pipeline(rooms, PipelineConfig(chunks=chunks), clock=time.time)
            inline_config = InlineConfig(
                chunks=chunks,
                num_embedded=settings.inline_embedded,
                cache_bytes=settings.inline_cache_bytes,
            )
            services.inline = InlineSearcher(embedder, search_text, inline_config)
            reranker = await load_reranker(settings.reranker) if settings.reranker else None
            tokens = await asyncio.to_thread(EmbedderTokens.load, settings.embedder)
            services.embeddings = CountingEmbedder(embedder, tokens)
            services.searcher = make_searcher(store, embedder, cache, reranker=reranker)
            num_abandoned = await queue.reclaim()
            logger.info("ingest ready", extra={"abandoned_jobs": num_abandoned})
            config = WorkerConfig(lanes=settings.lanes, poll_s=settings.poll_s)
            handler = await make_handler(settings, database, rooms, pipeline)
            yield Worker(queue, handler, config), _sweeper(database, queue, rooms)
    finally:
        await store.aclose()


async def make_handler(
    settings: IngestSettings, database: Database, rooms: Rooms, pipeline: Pipeline
) -> JobHandler:
    """What runs every kind of job, around this pipeline."""
    placer = Placer(
        PlacingRooms(
            ledger=rooms.ledger,
            placements=Placements(database, clock=time.time),
            blobs=rooms.blobs,
            texts=rooms.texts,
            indexer=pipeline.indexer,
            spans=await asyncio.to_thread(EmbedderTokens.load, settings.embedder),
        )
    )
    return JobHandler(rooms.ledger, pipeline, placer)


def _sweeper(database: Database, queue: JobQueue, rooms: Rooms) -> Sweeper:
    return Sweeper(
        SweepRooms(
            ledger=rooms.ledger,
            placements=Placements(database, clock=time.time),
            uploads=UploadsLedger(database, clock=time.time),
            queue=queue,
            blobs=rooms.blobs,
        ),
        SweepConfig(),
        clock=time.time,
    )


async def migrate(
    settings: IngestSettings, progress: Progress, *, restart: bool, writers_stopped: bool
) -> Migration:
    """Re-embed the index with the configured embedder. Raises DataDirBusy when the index is in
    the data directory and a worker has it; MigrationRefused; SearchUnavailable."""
    place = settings.index_place
    with _only_worker(settings) if isinstance(place, Path) else nullcontext():
        embedder = await load_embedder(EmbedderConfig(model=settings.embedder))
        return await migrate_index(
            place, embedder, progress, restart=restart, writers_stopped=writers_stopped
        )


def _queue_config(settings: IngestSettings) -> QueueConfig:
    return QueueConfig(
        lease_s=settings.lease_s, retry=RetryPolicy(max_attempts=settings.max_attempts)
    )


def open_sandbox(settings: IngestSettings) -> Sandbox:
    """Raises ValueError for a parser that is not installed."""
    limits = ParseLimits(
        memory_bytes=settings.parser_bytes,
        cpu_s=settings.parse_cpu_s,
        wall_s=settings.parse_wall_s,
        max_pages=settings.parse_max_pages,
        max_chars=settings.parse_max_chars,
    )
    return Sandbox(limits, parser=parser_module(settings.parser))


@contextmanager
def _only_worker(settings: IngestSettings) -> Iterator[None]:
    """Hold the data directory's lock; the system lets go of it when this process dies."""
    with (settings.data_dir / "ingest.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise DataDirBusy(f"another ringway already works in {settings.data_dir}") from error
        yield
