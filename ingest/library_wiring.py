"""Builds a `Library` for a process that neither parses nor searches itself, such as the gateway.

Importing this imports no model, no parser and no index.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from ingest.blobs import BlobStore
from ingest.client import RemoteSearcher
from ingest.database import Database, sqlite_url
from ingest.ledger import Ledger
from ingest.library import MAX_FILE_BYTES, LibraryParts, LocalLibrary
from ingest.stores_ledger import StoresLedger
from ingest.texts import TextStore
from ingest.uploads_ledger import UploadsLedger


@asynccontextmanager
async def open_library(
    data_dir: Path,
    *,
    searcher: RemoteSearcher,
    database_url: str | None = None,
    blobs_url: str | None = None,
    max_file_bytes: int = MAX_FILE_BYTES,
) -> AsyncIterator[LocalLibrary]:
    """The library over this data directory; searches and nudges go to `searcher`."""
    await asyncio.to_thread(data_dir.mkdir, parents=True, exist_ok=True)
    database = await Database.connect(database_url or sqlite_url(data_dir / "metadata.db"))
    try:
        blobs = await BlobStore.connect(blobs_url or data_dir / "blobs")
        yield LocalLibrary(
            LibraryParts(
                ledger=Ledger(database),
                stores=StoresLedger(database, clock=time.time),
                uploads=UploadsLedger(database, clock=time.time),
                blobs=blobs,
                texts=TextStore(blobs),
                searcher=searcher,
                inline=searcher,
                nudge=searcher.nudge,
                max_file_bytes=max_file_bytes,
            )
        )
    finally:
        await database.aclose()
