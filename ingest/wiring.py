"""Builds and runs the worker process: models, index, jobs and their HTTP face."""

import asyncio
import fcntl
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from random import Random

from starlette.types import ASGIApp

from ingest.blobs import BlobStore
from ingest.chunking import ChunkConfig
from ingest.database import Database
from ingest.face import Services, create_app
from ingest.inline import InlineConfig, InlineSearcher
from ingest.jobs import JobQueue, QueueConfig
from ingest.ledger import Ledger
from ingest.parsing.parsed import ParseLimits
from ingest.parsing.sandbox import Sandbox
from ingest.pipeline import Pipeline, PipelineConfig, Rooms
from ingest.retry import RetryPolicy
from ingest.settings import IngestSettings
from ingest.texts import CachedTexts, TextStore
from ingest.worker import Worker, WorkerConfig
from retrieval.config import EmbedderConfig
from retrieval.stores.rows import search_text
from retrieval.wiring import load_embedder, make_searcher, open_store

logger = logging.getLogger(__name__)

Serve = Callable[[ASGIApp], Coroutine[None, None, None]]
"""Hosts an app until the process is told to stop."""
STOP_GRACE_S = 3


class DataDirBusy(ValueError):
    """Another worker writes to this data directory."""


async def serve_ingest(settings: IngestSettings, serve: Serve) -> None:
    """Run the worker while `serve` serves its face; `serve` returns when it is told to stop.

    Raises DataDirBusy before anything is started. The face answers at once; `/health/ready` is
    503 until the models are loaded.
    """
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
            async with _built_worker(settings, database, queue, services) as worker:
                services.nudge = worker.nudge
                working = group.create_task(worker.run())
                await asyncio.wait((serving, working), return_when=asyncio.FIRST_COMPLETED)
                worker.stop()
                await working
        finally:
            serving.cancel()


@asynccontextmanager
async def _built_worker(
    settings: IngestSettings, database: Database, queue: JobQueue, services: Services
) -> AsyncIterator[Worker]:
    embedder = await load_embedder(EmbedderConfig(model=settings.embedder))
    store = await open_store(settings.index_dir, embedder)
    blobs = BlobStore.in_folder(settings.blobs_dir)
    texts = TextStore(blobs)
    cache = CachedTexts(texts)
    chunks = ChunkConfig(chunk_chars=settings.chunk_chars, parent_chars=settings.parent_chars)
    ledger = Ledger(database)
    try:
        async with Sandbox(_parse_limits(settings)) as sandbox:
            pipeline = Pipeline(
                Rooms(
                    ledger=ledger,
                    blobs=blobs,
                    texts=texts,
                    cache=cache,
                    sandbox=sandbox,
                    embedder=embedder,
                    store=store,
                    search_text=search_text,
                ),
                PipelineConfig(chunks=chunks),
                clock=time.time,
            )
            inline_config = InlineConfig(
                chunks=chunks,
                num_embedded=settings.inline_embedded,
                cache_bytes=settings.inline_cache_bytes,
            )
            services.inline = InlineSearcher(embedder, search_text, inline_config)
            services.searcher = make_searcher(store, embedder, cache)
            num_abandoned = await queue.reclaim()
            logger.info("ingest ready", extra={"abandoned_jobs": num_abandoned})
            config = WorkerConfig(lanes=settings.lanes, poll_s=settings.poll_s)
            yield Worker(queue, ledger, pipeline, config)
    finally:
        await store.aclose()


def _queue_config(settings: IngestSettings) -> QueueConfig:
    return QueueConfig(
        lease_s=settings.lease_s, retry=RetryPolicy(max_attempts=settings.max_attempts)
    )


def _parse_limits(settings: IngestSettings) -> ParseLimits:
    return ParseLimits(
        memory_bytes=settings.parse_memory_bytes,
        cpu_s=settings.parse_cpu_s,
        wall_s=settings.parse_wall_s,
        max_pages=settings.parse_max_pages,
        max_chars=settings.parse_max_chars,
    )


@contextmanager
def _only_worker(settings: IngestSettings) -> Iterator[None]:
    """Hold the data directory's lock; the system lets go of it when this process dies."""
    with (settings.data_dir / "ingest.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise DataDirBusy(f"another ringway already works in {settings.data_dir}") from error
        yield
