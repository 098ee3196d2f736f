"""The intake in front of a house, over objects in memory that a test changes at will."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ingest.api import FileRecord, FileStatus, TransientError
from ingest.events.intake import Intake, IntakeConfig, IntakeParts
from ingest.events.objects import ObjectTable
from ingest.events.source import ObjectChanged, Seen
from retrieval.api import SearchRequest
from tests.ingest.events.messages_of_s3 import BUCKET, Told, direct
from tests.ingest.house import House, PlainSandbox, open_house

LIMIT_BYTES = 1 << 20


@dataclass(slots=True)
class FakeSource:
    """A bucket with one object per key; its methods count, and fail when told to."""

    objects: dict[str, bytes] = field(default_factory=dict)
    version_ids: dict[str, str] = field(default_factory=dict)
    num_looks: int = 0
    num_reads: int = 0
    failing: bool = False
    while_reading: Callable[[], None] | None = None
    claimed_bytes: int | None = None

    async def look(self, bucket: str, key: str) -> Seen | None:
        self.num_looks += 1
        if self.failing:
            raise TransientError("S3 is out")
        raw = self.objects.get(key)
        if raw is None:
            return None
        return Seen(
            num_bytes=len(raw) if self.claimed_bytes is None else self.claimed_bytes,
            etag=etag_of(raw),
            version_id=self.version_ids.get(key),
        )

    async def read(self, bucket: str, key: str, seen: Seen) -> AsyncIterator[bytes]:
        self.num_reads += 1
        await asyncio.sleep(0)
        interrupt, self.while_reading = self.while_reading, None
        if interrupt is not None:
            interrupt()
        raw = self.objects.get(key)
        if raw is None or etag_of(raw) != seen.etag:
            raise ObjectChanged(key)
        yield raw


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    house: House
    source: FakeSource
    intake: Intake

    async def take(self, *told: Told, is_last: bool = False) -> None:
        await self.intake.take(direct(*told), is_last=is_last)

    async def files(self) -> list[FileRecord]:
        page = await self.house.library.list(after=None, limit=1000, ascending=True, purpose=None)
        return list(page.files)

    async def processed(self) -> dict[str, str]:
        """Settle, then the text of every file by its name; fails when one was not processed."""
        await self.house.settle()
        texts: dict[str, str] = {}
        for record in await self.files():
            assert record.status is FileStatus.PROCESSED, record
            assert record.filename not in texts, "two files of one object"
            texts[record.filename] = (await self.house.library.text(record.id)).text
        return texts

    async def found(self, query: str) -> list[str]:
        """The names of the files that a search over all finds."""
        names = {record.id: record.filename for record in await self.files()}
        found = await self.house.library.search(
            SearchRequest(query=query, document_ids=list(names))
        )
        return [names[passage.document_id] for passage in found.passages]


@asynccontextmanager
async def open_gate(data_dir: Path) -> AsyncIterator[Gate]:
    async with open_house(data_dir, sandbox=PlainSandbox()) as house:
        source = FakeSource()
        yield Gate(house=house, source=source, intake=await intake_of(house, source))


async def intake_of(house: House, source: FakeSource, *, pipeline_version: int = 1) -> Intake:
    parts = IntakeParts(
        source=source,
        objects=ObjectTable(house.database, clock=lambda: 1000.0),
        blobs=house.blobs,
    )
    config = IntakeConfig(max_object_bytes=LIMIT_BYTES, pipeline_version=pipeline_version)
    return Intake(parts, config, clock=lambda: 1000.0)


class Bucket:
    """Changes a source's objects and writes down the events that S3 would send."""

    def __init__(self, source: FakeSource) -> None:
        self._source = source
        self._number = 0
        self.told: list[Told] = []

    def put(self, key: str, raw: bytes) -> Told:
        self._source.objects[key] = raw
        told = Told(
            key=key, sequencer=self._next(), size=len(raw), etag=etag_of(raw), bucket=BUCKET
        )
        self.told.append(told)
        return told

    def remove(self, key: str) -> Told:
        self._source.objects.pop(key, None)
        told = Told(
            key=key, name="ObjectRemoved:Delete", sequencer=self._next(), size=None, etag=None
        )
        self.told.append(told)
        return told

    def _next(self) -> str:
        self._number += 1
        return f"0055AED6DC{self._number:04X}"


def etag_of(raw: bytes) -> str:
    return hashlib.md5(raw).hexdigest()


def blobs_under(folder: Path) -> set[str]:
    """The file ids whose uploaded bytes are kept."""
    return {path.name for path in (folder / "blobs" / "uploads").glob("*")}
