"""Builds the intake of S3 events. Imports no model and no web framework: a Lambda starts it."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ingest.blobs import BlobStore
from ingest.database import Database
from ingest.events.intake import Intake, IntakeConfig, IntakeParts
from ingest.events.objects import ObjectTable
from ingest.events.s3 import S3Source
from ingest.events.settings import EventSettings
from ingest.pipeline import VERSION
from ingest.settings import IngestSettings


@asynccontextmanager
async def open_intake(ingest: IngestSettings, events: EventSettings) -> AsyncIterator[Intake]:
    """Raises ValueError when the blob store cannot be used, TransientError for the database."""
    database = await Database.connect(ingest.sql_url)
    try:
        parts = IntakeParts(
            source=await S3Source.connect(events.aws()),
            objects=ObjectTable(database, clock=time.time),
            blobs=await BlobStore.connect(ingest.blobs),
        )
        config = IntakeConfig(max_object_bytes=ingest.max_file_bytes, pipeline_version=VERSION)
        yield Intake(parts, config, clock=time.time)
    finally:
        await database.aclose()
