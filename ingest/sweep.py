"""What time undoes: ends of files, uploads and stores, orphan blobs, old rows. Knows no content.

Each step can be done at any time, by several workers at once, and again.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import aclosing
from dataclasses import dataclass

from ingest.api import IngestError
from ingest.blobs import BlobStore
from ingest.jobs import JobQueue
from ingest.ledger import Ledger
from ingest.library_uploads import part_key
from ingest.placements import Placements
from ingest.uploads_ledger import UploadsLedger

logger = logging.getLogger(__name__)

FILE_PREFIXES = ("uploads/", "text/", "vectors/")
PART_PREFIX = "parts/"
BLOBS_PER_LOOK = 500
DAY_S = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepConfig:
    """All in seconds. `orphan_age_s` is longer than any upload takes: a blob is written before
    its row."""

    every_s: float = 600.0
    orphan_age_s: float = DAY_S
    done_jobs_s: float = DAY_S
    dead_jobs_s: float = 30 * DAY_S
    tombstones_s: float = 7 * DAY_S
    uploads_s: float = 7 * DAY_S

    def __post_init__(self) -> None:
        if self.every_s <= 0 or self.orphan_age_s < 0:
            raise ValueError("every_s must be positive and orphan_age_s not negative")


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRooms:
    ledger: Ledger
    placements: Placements
    uploads: UploadsLedger
    queue: JobQueue
    blobs: BlobStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """How much one sweep found."""

    expired_files: int
    expired_stores: int
    dropped_parts: int
    orphan_blobs: int
    forgotten_rows: int
    revived_jobs: int


class Sweeper:
    def __init__(
        self, rooms: SweepRooms, config: SweepConfig, *, clock: Callable[[], float]
    ) -> None:
        self._rooms = rooms
        self._config = config
        self._clock = clock

    async def run(self) -> None:
        """Sweep now and then, until cancelled; trouble waits for the next time."""
        while True:
            try:
                swept = await self.sweep()
                logger.info("swept", extra={"found": str(swept)})
            except IngestError as error:
                logger.warning("sweep broke off", extra={"cause": str(error)})
            await asyncio.sleep(self._config.every_s)

    async def sweep(self) -> Swept:
        """Raises TransientError."""
        rooms, now = self._rooms, self._clock()
        return Swept(
            expired_files=await rooms.ledger.tombstone_expired(now),
            expired_stores=await rooms.placements.empty_expired(),
            dropped_parts=await self._drop_parts(),
            orphan_blobs=await self._drop_orphans(now),
            revived_jobs=await rooms.queue.revive(now - self._config.every_s),
            forgotten_rows=await self._forget(now),
        )

    async def _forget(self, now: float) -> int:
        rooms, config = self._rooms, self._config
        return sum(
            (
                await rooms.queue.trim(
                    done_before=now - config.done_jobs_s, dead_before=now - config.dead_jobs_s
                ),
                await rooms.placements.trim_stores(),
                await rooms.ledger.trim(now - config.tombstones_s),
                await rooms.uploads.trim(now - config.uploads_s),
            )
        )

    async def _drop_parts(self) -> int:
        part_ids = await self._rooms.uploads.spent_parts()
        for part_id in part_ids:
            await self._rooms.blobs.delete(part_key(part_id))
            await self._rooms.uploads.forget_part(part_id)
        return len(part_ids)

    async def _drop_orphans(self, now: float) -> int:
        """Blobs whose row was never written, or is gone: a crash lies between. And what a crash
        left of blobs that were never whole."""
        num_dropped = await self._rooms.blobs.drop_unfinished(now - self._config.orphan_age_s)
        for prefix in (*FILE_PREFIXES, PART_PREFIX):
            async with aclosing(self._old_keys(prefix, now)) as looks:
                async for keys in looks:
                    owned = await self._owners(prefix, {_owner(key) for key in keys})
                    for key in keys:
                        if _owner(key) not in owned:
                            await self._rooms.blobs.delete(key)
                            num_dropped += 1
        return num_dropped

    async def _old_keys(self, prefix: str, now: float) -> AsyncGenerator[list[str], None]:
        keys: list[str] = []
        async with aclosing(self._rooms.blobs.list(prefix)) as listed:
            async for blob in listed:
                if blob.written_at < now - self._config.orphan_age_s:
                    keys.append(blob.key)
                if len(keys) == BLOBS_PER_LOOK:
                    yield keys
                    keys = []
        if keys:
            yield keys

    async def _owners(self, prefix: str, ids: Collection[str]) -> set[str]:
        if prefix == PART_PREFIX:
            return await self._rooms.uploads.known_parts(list(ids))
        return await self._rooms.ledger.known(ids)


def _owner(key: str) -> str:
    """The id in `uploads/ID`, `parts/ID` or `vectors/ID/recipe`."""
    return key.split("/")[1]
