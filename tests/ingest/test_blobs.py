"""Blobs are whole or absent, in a folder and in memory alike."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ingest.api import FileTooLarge
from ingest.blobs import BlobMissing, BlobStore
from tests.ingest.house import pieces

RAW = bytes(range(256)) * 40_000


@pytest.fixture(params=["folder", "memory"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> BlobStore:
    if request.param == "folder":
        return BlobStore.in_folder(tmp_path)
    return BlobStore.in_memory()


async def collected(blobs: BlobStore, key: str) -> bytes:
    return b"".join([piece async for piece in blobs.get(key)])


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


async def test_a_stream_is_stored_counted_and_digested(blobs: BlobStore) -> None:
    stored = await blobs.put_stream("uploads/a", pieces(RAW), limit_bytes=len(RAW))
    assert stored.num_bytes == len(RAW)
    assert stored.digest == hashlib.sha256(RAW).hexdigest()
    assert await collected(blobs, "uploads/a") == RAW
    assert await blobs.get_whole("uploads/a") == RAW


async def test_an_empty_stream_is_an_empty_blob(blobs: BlobStore) -> None:
    assert (await blobs.put_stream("a", pieces(b""), limit_bytes=10)).num_bytes == 0
    assert await collected(blobs, "a") == b""


async def test_one_byte_over_the_limit_stores_nothing(blobs: BlobStore) -> None:
    with pytest.raises(FileTooLarge) as caught:
        await blobs.put_stream("a", pieces(RAW), limit_bytes=len(RAW) - 1)
    assert caught.value.limit_bytes == len(RAW) - 1
    with pytest.raises(BlobMissing):
        await blobs.get_whole("a")


async def test_a_cancelled_upload_leaves_no_file(tmp_path: Path) -> None:
    blobs = BlobStore.in_folder(tmp_path)
    begun = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * (6 << 20)
            begun.set()
            await asyncio.sleep(0.01)

    async def upload() -> None:
        await blobs.put_stream("a", endless(), limit_bytes=1 << 40)

    uploading = asyncio.create_task(upload())
    await begun.wait()
    uploading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await uploading
    for _ in range(100):
        if not files_in(tmp_path):
            break
        await asyncio.sleep(0.02)
    assert files_in(tmp_path) == []


async def test_a_missing_blob_is_said_on_first_use(blobs: BlobStore) -> None:
    stream = blobs.get("nothing")
    with pytest.raises(BlobMissing):
        await anext(stream)


async def test_deleting_twice_is_the_same_as_once(blobs: BlobStore) -> None:
    await blobs.put("a", b"1")
    await blobs.delete("a")
    await blobs.delete("a")
    with pytest.raises(BlobMissing):
        await blobs.get_whole("a")
