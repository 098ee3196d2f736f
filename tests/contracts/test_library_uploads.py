"""What every `Uploads` must do: the fake that the gateway's tests use, and the real one."""

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ingest.api import FileStatus
from ingest.uploads_api import (
    UPLOAD_LIFE_S,
    NewUpload,
    PartsRefused,
    UploadClosed,
    UploadMissing,
    UploadStatus,
)
from tests.contracts.library_benches import BENCHES, LEASE, Bench, OpenBench
from tests.ingest.house import pieces

RAW = LEASE.encode()


@pytest.fixture(params=BENCHES)
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    make: OpenBench = request.param
    async with make(tmp_path) as opened:
        yield opened


async def begun(bench: Bench, num_bytes: int = len(RAW)) -> str:
    new = NewUpload(
        filename="l.txt", purpose="assistants", mime_type="text/plain", num_bytes=num_bytes
    )
    return (await bench.library.uploads.create(new)).id


async def part(bench: Bench, upload_id: str, raw: bytes) -> str:
    return (await bench.library.uploads.add_part(upload_id, pieces(raw, 7))).id


async def test_parts_become_one_file_in_the_order_named(bench: Bench) -> None:
    upload_id = await begun(bench)
    last, first = await part(bench, upload_id, RAW[50:]), await part(bench, upload_id, RAW[:50])
    md5 = hashlib.md5(RAW, usedforsecurity=False).hexdigest().upper()
    done = await bench.library.uploads.complete(upload_id, [first, last], md5=md5)
    assert done.status is UploadStatus.COMPLETED
    assert done.file is not None
    assert (done.file.num_bytes, done.file.filename) == (len(RAW), "l.txt")
    assert done.file.digest == hashlib.sha256(RAW).hexdigest()
    await bench.settle()
    assert (await bench.library.get(done.file.id)).status is FileStatus.PROCESSED
    assert (await bench.library.text(done.file.id)).text == LEASE


async def test_parts_that_do_not_make_the_file_are_refused_and_may_be_mended(bench: Bench) -> None:
    uploads, upload_id = bench.library.uploads, await begun(bench)
    first, last = await part(bench, upload_id, RAW[:50]), await part(bench, upload_id, RAW[50:])
    for part_ids, md5, said in (
        ([first], None, f"hold 50 bytes together; {len(RAW)} were announced"),
        ([first, first], None, "named twice"),
        ([first, "part_nobody"], None, "no part part_nobody"),
        ([last, first], hashlib.md5(RAW, usedforsecurity=False).hexdigest(), "the md5"),
    ):
        with pytest.raises(PartsRefused, match=said):
            await uploads.complete(upload_id, part_ids, md5=md5)
    page = await bench.library.list(after=None, limit=9, ascending=True, purpose=None)
    assert page.files == []
    done = await uploads.complete(upload_id, [first, last], md5=None)
    assert done.status is UploadStatus.COMPLETED


async def test_a_closed_upload_takes_nothing_more(bench: Bench) -> None:
    uploads = bench.library.uploads
    cancelled, completed, expired = [await begun(bench) for _ in range(3)]
    assert (await uploads.cancel(cancelled)).status is UploadStatus.CANCELLED
    whole = await part(bench, completed, RAW)
    await uploads.complete(completed, [whole], md5=None)
    bench.clock.now += UPLOAD_LIFE_S + 1
    assert (await uploads.get(expired)).status is UploadStatus.EXPIRED
    for upload_id in (cancelled, completed, expired):
        with pytest.raises(UploadClosed) as caught:
            await part(bench, upload_id, RAW)
        assert caught.value.status is (await uploads.get(upload_id)).status
        with pytest.raises(UploadClosed):
            await uploads.complete(upload_id, [whole], md5=None)
        with pytest.raises(UploadClosed):
            await uploads.cancel(upload_id)


async def test_nobodys_upload_is_missing(bench: Bench) -> None:
    uploads = bench.library.uploads
    for call in (
        uploads.get("upload_nobody"),
        uploads.cancel("upload_nobody"),
        uploads.complete("upload_nobody", ["p"], md5=None),
        uploads.add_part("upload_nobody", pieces(RAW)),
    ):
        with pytest.raises(UploadMissing):
            await call
