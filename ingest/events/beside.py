"""Takes S3 events beside the ingest worker, in its process and as long as it serves."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from random import Random

import httpx
from starlette.types import ASGIApp

from ingest.client import RemoteSearcher
from ingest.events.consumer import Consumer
from ingest.events.settings import EventSettings
from ingest.events.sqs import SqsQueue
from ingest.events.wiring import open_intake
from ingest.settings import IngestSettings
from retrieval.api import SearchUnavailable

logger = logging.getLogger(__name__)

Serve = Callable[[ASGIApp], Coroutine[None, None, None]]
"""Hosts an app until the process is told to stop."""


async def with_queue(serve: Serve, ingest: IngestSettings, events: EventSettings) -> Serve:
    """`serve`, and the queue's messages are taken as long as it serves.

    Raises ValueError when the queue cannot be used; serving does for the blob store.
    """
    assert events.queue_url is not None, "a queue is named"
    queue = await SqsQueue.connect(events.queue_url, events.aws())

    async def serve_both(app: ASGIApp) -> None:
        async with open_intake(ingest, events) as intake, _nudging(app) as nudge:
            consumer = Consumer(queue, intake, events.consumer(), rng=Random(), nudge=nudge)
            async with asyncio.TaskGroup() as group:
                group.create_task(consumer.run())
                try:
                    await serve(app)
                finally:
                    consumer.stop()

    return serve_both


@asynccontextmanager
async def _nudging(app: ASGIApp) -> AsyncIterator[Callable[[], Coroutine[None, None, None]]]:
    """Nudges the worker through its own face, without a socket."""
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app)) as client:
        worker = RemoteSearcher("http://worker", client)

        async def nudge() -> None:
            try:
                await worker.nudge()
            except SearchUnavailable as error:
                logger.info("worker not nudged", extra={"cause": str(error)})

        yield nudge
