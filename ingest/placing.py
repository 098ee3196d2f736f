"""One file's place in one vector store, made what its row says. Knows the order of the steps.

Every step can be done twice. The file's text was parsed once, for the library; here it is chunked
as the store's owner wants it. Vectors are kept by what they depend on, so a change of attributes,
and another store with the same chunking, embeds nothing again.
"""

import asyncio
import hashlib
import logging
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

from ingest.api import (
    UNREAD_PURPOSES,
    FailureCode,
    FileMissing,
    FileRecord,
    FileStatus,
    PermanentError,
    Stage,
    TransientError,
    UnsupportedFile,
    unread_cause,
)
from ingest.blobs import BlobMissing, BlobStore
from ingest.chunking import ChunkSource
from ingest.indexing import Indexer, Shelf, Vectors
from ingest.ledger import Ledger
from ingest.placements import Placed, Placement, Placements
from ingest.stores_api import Chunking, StoreFileStatus
from ingest.stores_rows import encode
from ingest.texts import KeptText, TextStore, vectors_prefix
from ingest.token_chunking import TokenSpans, WindowConfig, chunk_by_tokens
from retrieval.api import Attribute, Chunk

logger = logging.getLogger(__name__)

VERSION = 2
"""Raise it when chunking by tokens, or what is embedded for such a chunk, changes."""

BYTES_PER_NUMBER = 4


class FileUnread(PermanentError):
    """The library could not read the file, so no store can hold it."""

    def __init__(self, record: FileRecord) -> None:
        super().__init__(record.cause or "The file could not be read.")
        self.failure = record.failure or FailureCode.INVALID_FILE


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacingRooms:
    """What placing works with. `spans` counts tokens as the embedder does."""

    ledger: Ledger
    placements: Placements
    blobs: BlobStore
    texts: TextStore
    indexer: Indexer
    spans: TokenSpans
    windows: WindowConfig = field(default_factory=WindowConfig)


class Placer:
    def __init__(self, rooms: PlacingRooms) -> None:
        self._rooms = rooms

    async def place(self, store_id: str, file_id: str) -> None:
        """Raises PermanentError (the file's cause in this store) or TransientError."""
        placement = await self._rooms.placements.get(store_id, file_id)
        record = await self._record(file_id)
        if placement is None or record is None or not placement.is_wanted:
            await self._clear(store_id, file_id, placement)
            return
        if record.status is FileStatus.ERROR:
            raise FileUnread(record)
        if record.purpose in UNREAD_PURPOSES:
            raise UnsupportedFile(f"Not searchable: {unread_cause(record.purpose)}.")
        if record.status is not FileStatus.PROCESSED:
            raise TransientError("the file is not read yet")
        await self._index(record, placement)

    async def fail(self, store_id: str, file_id: str, error: PermanentError) -> None:
        """Record why the file cannot be in the store, and take back what was written."""
        placements = self._rooms.placements
        await placements.fail(store_id, file_id, str(error), error.failure)
        placement = await placements.get(store_id, file_id)
        if placement is None or not placement.is_wanted:
            await self._clear(store_id, file_id, placement)

    async def _record(self, file_id: str) -> FileRecord | None:
        try:
            return (await self._rooms.ledger.get(file_id)).record
        except FileMissing:
            return None

    async def _clear(self, store_id: str, file_id: str, placement: Placement | None) -> None:
        generation = None if placement is None else placement.generation
        await self._rooms.indexer.remove(Shelf(file_id, store_id), generation=generation)
        if placement is not None:
            await self._rooms.placements.cleared(placement)
        logger.info("file cleared from store", extra={"file_id": file_id, "store_id": store_id})

    async def _index(self, record: FileRecord, placement: Placement) -> None:
        rooms, shelf = self._rooms, Shelf(placement.file_id, placement.store_id)
        recipe = recipe_of(record.digest, placement.chunking, rooms.indexer.embedder)
        generation = generation_of(recipe, placement.attributes)
        if placement.generation != generation:
            if not await rooms.placements.begin(placement):
                return
            chunks = await self._chunks(record, placement, generation)
            await self._write(record.id, recipe, chunks)
            await rooms.placements.reach(placement, Stage.CHECKING)
            await rooms.indexer.check(shelf, generation, len(chunks))
            if not await rooms.placements.finish(placement, placed_of(generation, chunks)):
                return
        elif placement.status is not StoreFileStatus.COMPLETED:
            await rooms.placements.confirm(placement)
        await rooms.indexer.remove(shelf, keep_generation=generation)

    async def _chunks(
        self, record: FileRecord, placement: Placement, generation: str
    ) -> Sequence[Chunk]:
        kept = await self._text(record.id)
        source = ChunkSource(
            document_id=record.id,
            generation=generation,
            text=kept.text,
            title=PurePath(record.filename).stem,
            outline=kept.outline,
            collection=placement.store_id,
            attributes=comparable(placement.attributes),
        )
        rooms = self._rooms
        return await asyncio.to_thread(
            chunk_by_tokens, source, placement.chunking, rooms.spans, rooms.windows
        )

    async def _text(self, file_id: str) -> KeptText:
        try:
            return await self._rooms.texts.get(file_id)
        except BlobMissing as error:
            raise TransientError("the file's text is gone") from error

    async def _write(self, file_id: str, recipe: str, chunks: Sequence[Chunk]) -> None:
        key = f"{vectors_prefix(file_id)}{recipe}"
        known = await self._known_vectors(key, len(chunks))
        if known is not None:
            await self._rooms.indexer.write_known(chunks, known)
            return
        vectors = await self._rooms.indexer.write(chunks)
        packed = b"".join(array("f", vector).tobytes() for vector in vectors)
        await self._rooms.blobs.put(key, packed)

    async def _known_vectors(self, key: str, num_vectors: int) -> Vectors | None:
        """None unless there are exactly as many as chunks."""
        try:
            packed = await self._rooms.blobs.get_whole(key)
        except BlobMissing:
            return None
        if not packed or not num_vectors or len(packed) % (num_vectors * BYTES_PER_NUMBER):
            return None
        size = len(packed) // num_vectors
        if size != self._rooms.indexer.dimension * BYTES_PER_NUMBER:
            return None
        pieces = (packed[first : first + size] for first in range(0, len(packed), size))
        return [array("f", piece) for piece in pieces]


def recipe_of(digest: str, chunking: Chunking, embedder: str) -> str:
    """Names all that the vectors of a file's chunks depend on."""
    sizes = f"{chunking.max_tokens}\0{chunking.overlap_tokens}"
    return hashlib.sha256(f"{digest}\0{VERSION}\0{sizes}\0{embedder}".encode()).hexdigest()[:32]


def generation_of(recipe: str, attributes: Mapping[str, Attribute]) -> str:
    """Names all that the chunks depend on."""
    return hashlib.sha256(f"{recipe}\0{encode(attributes)}".encode()).hexdigest()[:32]


def comparable(attributes: Mapping[str, Attribute]) -> dict[str, Attribute]:
    """As filters compare them: every number a float."""
    return {
        key: value if isinstance(value, str | bool) else float(value)
        for key, value in attributes.items()
    }


def placed_of(generation: str, chunks: Sequence[Chunk]) -> Placed:
    num_bytes = sum(len(each.text.encode("utf-8", "surrogatepass")) for each in chunks)
    return Placed(generation=generation, num_chunks=len(chunks), usage_bytes=num_bytes)
