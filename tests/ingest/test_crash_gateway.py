"""kill -9 of the gateway in the middle of an upload or a deletion: nothing half done stays."""

import asyncio
import signal
import sys
import time
from pathlib import Path

import pytest

from ingest.api import FileMissing, FileStatus
from tests.ingest.crashing_gateway import DELETE_STAGES, PARTS_STAGES, TEXT, WHOLE_STAGES
from tests.ingest.house import PlainSandbox, open_house

ENTERED = {"row", "completed"}
"""Stages after which the file is in the ledger."""

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(60)]


async def run_until_it_dies(data_dir: Path, stage: str, file_id: str = "") -> None:
    gateway = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.ingest.crashing_gateway", str(data_dir), stage, file_id
    )
    assert await gateway.wait() == -signal.SIGKILL


async def blobs_in_days(data_dir: Path) -> set[str]:
    """What a sweep leaves when the upload has expired and orphans are old."""
    in_days = time.time() + 2 * 86_400
    async with open_house(data_dir, sandbox=PlainSandbox(), clock=lambda: in_days) as house:
        await house.sweeper.sweep()
        await house.settle()
    blobs = data_dir / "blobs"
    return {str(path.relative_to(blobs)) for path in blobs.rglob("*") if path.is_file()}


@pytest.mark.parametrize("stage", [*WHOLE_STAGES, *PARTS_STAGES])
async def test_an_upload_is_there_whole_or_leaves_nothing(tmp_path: Path, stage: str) -> None:
    await run_until_it_dies(tmp_path, stage)
    async with open_house(tmp_path, sandbox=PlainSandbox()) as house:
        await house.settle()
        page = await house.library.list(after=None, limit=10, ascending=True, purpose=None)
        assert len(page.files) == (stage in ENTERED)
        for record in page.files:
            assert record.status is FileStatus.PROCESSED
            assert (await house.library.text(record.id)).text == TEXT.decode()
    owned = {f"{kind}/{record.id}" for record in page.files for kind in ("uploads", "text")}
    assert await blobs_in_days(tmp_path) == owned


@pytest.mark.parametrize("stage", DELETE_STAGES)
async def test_a_deletion_that_was_begun_is_finished(tmp_path: Path, stage: str) -> None:
    async with open_house(tmp_path, sandbox=PlainSandbox()) as house:
        record = await house.add(TEXT)
        await house.settle()
    await run_until_it_dies(tmp_path, stage, record.id)
    async with open_house(tmp_path, sandbox=PlainSandbox()) as house:
        with pytest.raises(FileMissing):
            await house.library.get(record.id)
        await house.settle()
        assert await house.ledger.is_purged(record.id)
    assert await blobs_in_days(tmp_path) == set()
