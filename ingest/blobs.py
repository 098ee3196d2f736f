"""Bytes under keys, in a folder, in memory or on S3. Knows nothing of files, jobs or text."""

import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import obstore
from obstore.store import LocalStore, MemoryStore, ObjectStore

from ingest.api import FileTooLarge

READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Stored:
    num_bytes: int
    digest: str
    """SHA-256 hex of the bytes."""


class BlobMissing(Exception):
    """No blob has this key."""


class BlobStore:
    """A blob is there whole or not at all: the store uploads aside and renames at the end."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    @classmethod
    def in_folder(cls, folder: Path) -> "BlobStore":
        return cls(LocalStore(folder, mkdir=True))

    @classmethod
    def in_memory(cls) -> "BlobStore":
        return cls(MemoryStore())

    async def put_stream(self, key: str, body: AsyncIterator[bytes], *, limit_bytes: int) -> Stored:
        """Store the stream. On any error, FileTooLarge and cancellation included, store nothing."""
        measured = Measured(body, limit_bytes)
        await obstore.put_async(self._store, key, aiter(measured))
        return measured.result()

    async def put(self, key: str, body: bytes) -> None:
        await obstore.put_async(self._store, key, body)

    async def get(self, key: str) -> AsyncIterator[bytes]:
        """The blob in pieces of about a mebibyte. Raises BlobMissing on first use."""
        try:
            found = await obstore.get_async(self._store, key)
        except FileNotFoundError as error:
            raise BlobMissing(key) from error
        async for piece in found.stream(min_chunk_size=READ_BYTES):
            yield bytes(piece)

    async def get_whole(self, key: str) -> bytes:
        """Raises BlobMissing."""
        try:
            found = await obstore.get_async(self._store, key)
        except FileNotFoundError as error:
            raise BlobMissing(key) from error
        return bytes(await found.bytes_async())

    async def delete(self, key: str) -> None:
        """Idempotent."""
        try:
            await obstore.delete_async(self._store, key)
        except FileNotFoundError:
            return


class Measured:
    """Passes a stream through, counts and digests it, and stops it at a limit."""

    def __init__(self, body: AsyncIterator[bytes], limit_bytes: int) -> None:
        self._body = body
        self._limit_bytes = limit_bytes
        self._digest = hashlib.sha256()
        self._num_bytes = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._body:
            self._num_bytes += len(piece)
            if self._num_bytes > self._limit_bytes:
                raise FileTooLarge(limit_bytes=self._limit_bytes)
            self._digest.update(piece)
            yield piece

    def result(self) -> Stored:
        return Stored(self._num_bytes, self._digest.hexdigest())
