"""One file's way from bytes to indexed passages, and out again. Knows the order of the steps.

Every step can be done twice: a second run of a finished job changes nothing, and a run that was
cut short is repeated from its beginning under the same generation and the same chunk ids.
"""

import asyncio
import hashlib
import logging
import tempfile
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from ingest.api import (
    FileMissing,
    FileRecord,
    FileStatus,
    PermanentError,
    Stage,
    TransientError,
)
from ingest.blobs import BlobMissing, BlobStore
from ingest.chunking import ChunkConfig, ChunkSource, chunk
from ingest.indexing import Indexer, Shelf
from ingest.ledger import Entry, Ledger, Outcome
from ingest.parsing.parsed import Parsed
from ingest.parsing.sandbox import Sandbox
from ingest.room import Room
from ingest.texts import CachedTexts, KeptText, TextStore, upload_key, vectors_prefix
from retrieval.api import Chunk, Embedder, Store

logger = logging.getLogger(__name__)

VERSION = 2
"""Raise it when parsing, chunking or what is embedded changes: all files get a new generation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineConfig:
    chunks: ChunkConfig = field(default_factory=ChunkConfig)
    batch_chunks: int = 256
    """Chunks embedded and written together: one commit of the index each."""

    parsers: int = 2
    """Files parsed at a time; each may take all the memory that parsing may."""

    room_chars: int = 16_000_000
    """Text of all files between parser and index; about 8 bytes of memory each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rooms:
    """What a pipeline works with."""

    ledger: Ledger
    blobs: BlobStore
    texts: TextStore
    cache: CachedTexts
    sandbox: Sandbox
    embedder: Embedder
    store: Store
    search_text: Callable[[Chunk], str]
    """What is embedded for a chunk."""


class Pipeline:
    """Runs of different files may overlap: the next is parsed while one is embedded."""

    def __init__(self, rooms: Rooms, config: PipelineConfig, *, clock: Callable[[], float]) -> None:
        self._rooms = rooms
        self._config = config
        self._clock = clock
        self._parsers = asyncio.Semaphore(config.parsers)
        self._room = Room(config.room_chars)
        self.indexer = Indexer(
            rooms.embedder, rooms.store, rooms.search_text, batch_chunks=config.batch_chunks
        )

    async def ingest(self, file_id: str) -> None:
        """Raises PermanentError (the file's cause) or TransientError."""
        entry = await self._begun(file_id)
        if entry is None:
            return
        record = entry.record
        generation = generation_of(record.digest, self._rooms.embedder.identity)
        if record.status is FileStatus.PROCESSED and entry.generation == generation:
            return
        async with AsyncExitStack() as held:
            async with self._parsers:
                parsed = await self._parse(record)
                await held.enter_async_context(self._room.taken(len(parsed.text)))
            await self._publish(file_id, await self._index(record, generation, parsed))

    async def _begun(self, file_id: str) -> Entry | None:
        """The file, if it is to be read now."""
        if (entry := await self._rooms.ledger.begin(file_id)) is not None:
            return entry
        try:
            entry = await self._rooms.ledger.get(file_id)
        except FileMissing:
            return None
        if entry.record.status is FileStatus.PROCESSED:
            return entry
        await self.discard(file_id)
        return None

    async def _index(self, record: FileRecord, generation: str, parsed: Parsed) -> Outcome:
        chunks = await self._keep(record, generation, parsed)
        await self._rooms.ledger.reach(record.id, Stage.INDEXING)
        await self.indexer.write(chunks)
        await self._rooms.ledger.reach(record.id, Stage.CHECKING)
        await self.indexer.check(Shelf(record.id), generation, len(chunks))
        return Outcome(
            generation=generation,
            num_chars=len(parsed.text),
            num_chunks=len(chunks),
            text_digest=await asyncio.to_thread(digest_of, parsed.text),
            notes=tuple(parsed.notes),
        )

    async def delete(self, file_id: str) -> None:
        """Remove all that a tombstoned file left; nothing for one that lives. Idempotent."""
        if not await self._rooms.ledger.is_deleted(file_id):
            return
        ledger, blobs = self._rooms.ledger, self._rooms.blobs
        await ledger.leave_stores(file_id, self._clock())
        await self._clear(file_id, await ledger.digest(file_id))
        async for blob in blobs.list(vectors_prefix(file_id)):
            await blobs.delete(blob.key)
        await blobs.delete(upload_key(file_id))
        await ledger.purge(file_id, self._clock())
        logger.info("file removed", extra={"file_id": file_id})

    async def discard(self, file_id: str) -> None:
        """Take back what a failed run wrote; a file in ERROR has no chunks and no text."""
        await self._clear(file_id, await self._rooms.ledger.digest(file_id))

    async def _clear(self, file_id: str, digest: str) -> None:
        generation = generation_of(digest, self.indexer.embedder)
        await self.indexer.remove(Shelf(file_id), generation=generation)
        await self._rooms.texts.delete(file_id)
        self._rooms.cache.forget(file_id)

    async def _parse(self, record: FileRecord) -> Parsed:
        with tempfile.TemporaryDirectory(prefix="ringway-parse-") as folder:
            path = Path(folder) / "upload"
            await self._download(record, path)
            return await self._rooms.sandbox.read(path, record.filename)

    async def _download(self, record: FileRecord, path: Path) -> None:
        digest = hashlib.sha256()
        try:
            with await asyncio.to_thread(path.open, "wb") as target:
                async for piece in self._rooms.blobs.get(upload_key(record.id)):
                    digest.update(piece)
                    await asyncio.to_thread(target.write, piece)
        except BlobMissing as error:
            raise PermanentError("The uploaded bytes are gone.") from error
        except OSError as error:
            raise TransientError(f"the upload cannot be read: {error}") from error
        if digest.hexdigest() != record.digest:
            raise PermanentError("The stored bytes are not those that were uploaded.")

    async def _keep(self, record: FileRecord, generation: str, parsed: Parsed) -> list[Chunk]:
        source = ChunkSource(
            document_id=record.id,
            generation=generation,
            text=parsed.text,
            title=PurePath(record.filename).stem,
            outline=parsed.outline,
        )
        chunks = await asyncio.to_thread(chunk, source, self._config.chunks)
        kept = KeptText(
            generation=generation,
            text=parsed.text,
            page_starts=parsed.page_starts,
            outline=parsed.outline,
        )
        await self._rooms.texts.put(record.id, kept)
        self._rooms.cache.forget(record.id)
        return chunks

    async def _publish(self, file_id: str, outcome: Outcome) -> None:
        if not await self._rooms.ledger.finish(file_id, outcome):
            logger.info("file deleted while it was read", extra={"file_id": file_id})
            await self.discard(file_id)
            return
        await self.indexer.remove(Shelf(file_id), keep_generation=outcome.generation)
        logger.info(
            "file processed",
            extra={
                "file_id": file_id,
                "chars": outcome.num_chars,
                "chunks": outcome.num_chunks,
            },
        )


def generation_of(digest: str, embedder: str) -> str:
    """Names all that the chunks of a file depend on."""
    return hashlib.sha256(f"{digest}\0{VERSION}\0{embedder}".encode()).hexdigest()[:32]


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
