"""A gateway's library that kills itself at one stage; run by the crash tests only.

`python -m tests.ingest.crashing_gateway DATA_DIR STAGE [FILE_ID]` uploads TEXT, whole or in parts,
or deletes a file.
"""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx

from ingest.api import FileRecord
from ingest.blobs import BlobStore, Stored
from ingest.client import RemoteSearcher
from ingest.database import Database, sqlite_url
from ingest.ledger import Ledger
from ingest.library import LibraryParts, LocalLibrary
from ingest.stores_ledger import StoresLedger
from ingest.texts import TextStore
from ingest.uploads_api import NewUpload
from ingest.uploads_ledger import UploadsLedger
from tests.ingest.house import pieces

TEXT = b"The rent amounts to nine hundred guilders."
PADDING_BYTES = 64 << 20
"""More than obstore keeps back before it writes."""

WHOLE_STAGES = ("uploading", "blob", "row")
PARTS_STAGES = ("part", "joined", "completed")
DELETE_STAGES = ("tombstone",)


class Mortal:
    stage = ""

    def reach(self, here: str) -> None:
        if here == self.stage:
            os.kill(os.getpid(), signal.SIGKILL)


mortal = Mortal()


async def dying(body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Stage "uploading": the first bytes have gone to the disk already."""
    async for piece in body:
        yield piece
        yield bytes(PADDING_BYTES if mortal.stage == "uploading" else 0)
        mortal.reach("uploading")


class MortalBlobs(BlobStore):
    async def put_stream(self, key: str, body: AsyncIterator[bytes], *, limit_bytes: int) -> Stored:
        stored = await super().put_stream(key, dying(body), limit_bytes=limit_bytes)
        is_part = key.startswith("parts/")
        mortal.reach("part" if is_part else "blob")
        mortal.reach("part" if is_part else "joined")
        return stored


class MortalLedger(Ledger):
    def for_tenant(self, tenant: str) -> "MortalLedger":
        return self

    async def add(self, record: FileRecord) -> None:
        await super().add(record)
        mortal.reach("row")

    async def tombstone(self, file_id: str, now: float) -> None:
        await super().tombstone(file_id, now)
        mortal.reach("tombstone")


class MortalUploads(UploadsLedger):
    def for_tenant(self, tenant: str) -> "MortalUploads":
        return self

    async def complete(self, upload_id: str, record: FileRecord) -> None:
        await super().complete(upload_id, record)
        mortal.reach("completed")


async def main(data_dir: Path, stage: str, file_id: str) -> None:
    mortal.stage = stage
    database = await Database.connect(sqlite_url(data_dir / "metadata.db"))
    blobs = MortalBlobs.in_folder(data_dir / "blobs")
    async with httpx.AsyncClient() as http:
        no_worker = RemoteSearcher("http://127.0.0.1:9", http)
        library = LocalLibrary(
            LibraryParts(
                ledger=MortalLedger(database),
                stores=StoresLedger(database, clock=time.time),
                uploads=MortalUploads(database, clock=time.time),
                blobs=blobs,
                texts=TextStore(blobs),
                searcher=no_worker,
                inline=no_worker,
                nudge=no_worker.nudge,
            )
        )
        if stage in DELETE_STAGES:
            await library.delete(file_id)
        elif stage in PARTS_STAGES:
            await upload_in_parts(library)
        else:
            await library.add(filename="rent.txt", purpose="user_data", body=pieces(TEXT))


async def upload_in_parts(library: LocalLibrary) -> None:
    new = NewUpload(
        filename="rent.txt", purpose="user_data", mime_type="text/plain", num_bytes=len(TEXT)
    )
    upload = await library.uploads.create(new)
    part = await library.uploads.add_part(upload.id, pieces(TEXT))
    await library.uploads.complete(upload.id, [part.id], md5=None)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else ""))
