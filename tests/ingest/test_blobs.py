"""Blobs are whole or absent, in a folder, in memory and on S3 alike."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ingest.api import FileTooLarge, TransientError
from ingest.blobs import BlobMissing, BlobStore
from tests.ingest.events.cloud import Cloud
from tests.ingest.house import pieces

RAW = bytes(range(256)) * 40_000


@pytest.fixture(params=["folder", "memory", pytest.param("s3", marks=pytest.mark.services)])
async def blobs(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> BlobStore:
    match request.param:
        case "folder":
            return BlobStore.in_folder(tmp_path)
        case "memory":
            return BlobStore.in_memory()
    cloud: Cloud = request.getfixturevalue("cloud")
    monkeypatch.setenv("AWS_ENDPOINT_URL", cloud.url)
    return await BlobStore.connect(f"s3://{cloud.new_bucket()}/a prefix/of ours")


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


@pytest.mark.services
async def test_an_upload_to_s3_that_fails_leaves_no_parts(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", cloud.url)
    bucket = cloud.new_bucket()
    blobs = await BlobStore.connect(f"s3://{bucket}")
    with pytest.raises(FileTooLarge):
        await blobs.put_stream("a", pieces(bytes(12 << 20)), limit_bytes=11 << 20)
    assert "Uploads" not in cloud.s3.list_multipart_uploads(Bucket=bucket)
    assert "Contents" not in cloud.s3.list_objects_v2(Bucket=bucket)


@pytest.mark.services
async def test_s3_that_fails_now_and_then_keeps_and_gives_every_blob(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", cloud.url)
    bucket = cloud.new_bucket()
    blobs = await BlobStore.connect(f"s3://{bucket}")
    with cloud.faults.striking(0.2, bucket):
        for number in range(12):
            await blobs.put_stream(f"k{number}", pieces(RAW[:100_000]), limit_bytes=len(RAW))
            assert await collected(blobs, f"k{number}") == RAW[:100_000]
    assert cloud.faults.num_failures > 0


@pytest.mark.services
async def test_a_bucket_that_cannot_be_used_is_refused_at_the_start(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", cloud.url)
    with pytest.raises(ValueError, match="cannot be listed"):
        await BlobStore.connect("s3://no-such-bucket/x")
    with pytest.raises(ValueError, match="not gs://bucket"):
        await BlobStore.connect("gs://bucket")


@pytest.mark.services
async def test_s3_that_stopped_answering_is_a_passing_trouble(
    cloud: Cloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", cloud.url)
    bucket = cloud.new_bucket()
    blobs = await BlobStore.connect(f"s3://{bucket}")
    await blobs.put("a", b"1")
    with (
        cloud.faults.striking(1.0, bucket),
        pytest.raises(TransientError, match="does not answer"),
    ):
        await blobs.get_whole("a")
    assert await blobs.get_whole("a") == b"1"
