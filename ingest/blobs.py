"""Bytes under keys, in a folder, in memory or on S3. Knows nothing of files, jobs or text."""

import asyncio
import hashlib
import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import BaseError
from obstore.store import LocalStore, MemoryStore, ObjectStore, S3Store

from ingest.api import FileTooLarge, TransientError

READ_BYTES = 1 << 20
UNFINISHED = re.compile(r"#\d+$")
CREDENTIALS_TTL = timedelta(minutes=5)
S3_RETRIES = 4
S3_RETRY_TIMEOUT = timedelta(seconds=30)
S3_REQUEST_TIMEOUT = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class Stored:
    num_bytes: int
    digest: str
    """SHA-256 hex of the bytes."""


@dataclass(frozen=True, slots=True)
class Listed:
    key: str
    num_bytes: int
    written_at: float
    """Unix seconds."""


class BlobMissing(Exception):
    """No blob has this key."""


class BlobStore:
    """A blob is there whole or not at all: the store uploads aside and publishes at the end.

    Every method raises TransientError when the store does not answer or does not let us in.
    """

    def __init__(self, store: ObjectStore, folder: Path | None = None) -> None:
        self._store = store
        self._folder = folder

    @classmethod
    def in_folder(cls, folder: Path) -> "BlobStore":
        return cls(LocalStore(folder, mkdir=True), folder)

    @classmethod
    def in_memory(cls) -> "BlobStore":
        return cls(MemoryStore())

    @classmethod
    async def connect(cls, url: str | Path) -> "BlobStore":
        """A folder, or `s3://bucket/prefix` with the credentials, region and endpoint of AWS_*.

        Raises ValueError for another scheme or a bucket that cannot be listed.
        """
        parts = urlsplit(str(url))
        if isinstance(url, Path) or not parts.scheme:
            return cls.in_folder(Path(url))
        if parts.scheme != "s3" or not parts.netloc:
            raise ValueError(f"blobs are kept in a folder or at s3://bucket/prefix, not {url}")
        store = await asyncio.to_thread(_s3_store, parts.netloc, parts.path.strip("/"))
        try:
            await obstore.list_with_delimiter_async(store)
        except (BaseError, FileNotFoundError) as error:
            raise ValueError(f"the blobs at {url} cannot be listed: {error}") from error
        return cls(store)

    async def put_stream(self, key: str, body: AsyncIterator[bytes], *, limit_bytes: int) -> Stored:
        """Store the stream. On any error, FileTooLarge and cancellation included, store nothing."""
        measured = Measured(body, limit_bytes)
        with _translated():
            await obstore.put_async(self._store, key, aiter(measured))
        return measured.result()

    async def put(self, key: str, body: bytes) -> None:
        with _translated():
            await obstore.put_async(self._store, key, body)

    async def get(self, key: str) -> AsyncIterator[bytes]:
        """The blob in pieces of about a mebibyte. Raises BlobMissing on first use."""
        with _translated():
            try:
                found = await obstore.get_async(self._store, key)
            except FileNotFoundError as error:
                raise BlobMissing(key) from error
            async for piece in found.stream(min_chunk_size=READ_BYTES):
                yield bytes(piece)

    async def get_whole(self, key: str) -> bytes:
        """Raises BlobMissing."""
        with _translated():
            try:
                found = await obstore.get_async(self._store, key)
            except FileNotFoundError as error:
                raise BlobMissing(key) from error
            return bytes(await found.bytes_async())

    async def list(self, prefix: str) -> AsyncGenerator[Listed, None]:
        """The blobs whose key begins with `prefix`, which ends in a slash; in no order."""
        with _translated():
            async for found in obstore.list(self._store, prefix.rstrip("/")):
                for each in found:
                    at = each["last_modified"].timestamp()
                    yield Listed(each["path"], each["size"], at)

    async def delete(self, key: str) -> None:
        """Idempotent."""
        with _translated():
            try:
                await obstore.delete_async(self._store, key)
            except FileNotFoundError:
                return

    async def drop_unfinished(self, written_before: float) -> int:
        """Remove what writers that were killed have left of blobs; returns how many.

        A folder holds them beside the blobs, as KEY#1, and lists them to nobody; on S3 the
        bucket's lifecycle rule removes them.
        """
        if self._folder is None:
            return 0
        try:
            return await asyncio.to_thread(_unlink_unfinished, self._folder, written_before)
        except OSError as error:
            raise TransientError(f"the blob store does not answer: {error}") from error


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


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except BaseError as error:
        raise TransientError(f"the blob store does not answer: {error}") from error


def _unlink_unfinished(folder: Path, written_before: float) -> int:
    num_dropped = 0
    for path in folder.rglob("*#*"):
        is_old = UNFINISHED.search(path.name) and path.stat().st_mtime < written_before
        if is_old and path.is_file():
            path.unlink(missing_ok=True)
            num_dropped += 1
    return num_dropped


def _s3_store(bucket: str, prefix: str) -> S3Store:
    """boto3 finds the credentials, so that blobs and events are read by the same identity.

    A cancelled upload leaves parts that only the bucket's lifecycle rule removes; an upload that
    failed otherwise is aborted.
    """
    from obstore.auth.boto3 import Boto3CredentialProvider  # boto3 costs 0.2 s and is an extra

    return S3Store(
        bucket,
        prefix=prefix or None,
        credential_provider=Boto3CredentialProvider(ttl=CREDENTIALS_TTL),
        client_options={"allow_http": True, "timeout": S3_REQUEST_TIMEOUT},
        retry_config={"max_retries": S3_RETRIES, "retry_timeout": S3_RETRY_TIMEOUT},
    )
