"""kill -9 between an S3 event and its file: no lost file, none twice, no orphan."""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from ingest.api import FileStatus
from ingest.sweep import SweepConfig, Sweeper
from tests.ingest.events.cloud import Cloud
from tests.ingest.events.crashing_intake import STAGES
from tests.ingest.events.gate import blobs_under
from tests.ingest.events.messages_of_s3 import Told, direct, in_eventbridge, in_sns
from tests.ingest.house import PlainSandbox, open_house

OLD, NEW = "The rent was eight hundred guilders.", "The rent is nine hundred guilders."


async def consume(cloud: Cloud, data_dir: Path, url: str, stage: str) -> int:
    consumer = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "tests.ingest.events.crashing_intake", str(data_dir), url, cloud.url, stage),
        env=os.environ | cloud.environment,
    )
    return await consumer.wait()


async def consume_to_the_end(cloud: Cloud, data_dir: Path, url: str) -> None:
    """What the dead consumer held is visible again after a second."""
    async with asyncio.timeout(30):
        while cloud.depth(url):
            assert await consume(cloud, data_dir, url, "never") == 0
            await asyncio.sleep(0.2)


@pytest.mark.ranks
@pytest.mark.services
@pytest.mark.timeout(60)
@pytest.mark.parametrize("stage", STAGES)
async def test_what_a_killed_consumer_left_is_finished_by_the_next(
    cloud: Cloud, tmp_path: Path, stage: str
) -> None:
    bucket, (url, dead) = cloud.new_bucket(), cloud.new_queue_with_dead_letters(5)
    for number, text in enumerate((OLD, NEW), start=1):
        answer = cloud.s3.put_object(Bucket=bucket, Key="a b+ü.txt", Body=text.encode())
        told = Told(
            key="a b+ü.txt",
            size=len(text),
            etag=answer["ETag"],
            bucket=bucket,
            sequencer=f"006{number}",
        )
        for body in (direct(told), in_sns(direct(told)), in_eventbridge(told)):
            cloud.sqs.send_message(QueueUrl=url, MessageBody=body)
    assert await consume(cloud, tmp_path, url, stage) == -signal.SIGKILL
    await consume_to_the_end(cloud, tmp_path, url)
    assert cloud.depth(dead) == 0
    async with open_house(tmp_path, sandbox=PlainSandbox()) as house:
        await house.settle()
        page = await house.library.list(after=None, limit=10, ascending=True, purpose=None)
        [record] = page.files
        assert (record.filename, record.status) == ("a b+ü.txt", FileStatus.PROCESSED)
        assert (await house.library.text(record.id)).text == NEW
        tomorrow = time.time() + 2 * 86_400
        await Sweeper(house.sweep_rooms, SweepConfig(), clock=lambda: tomorrow).sweep()
        assert blobs_under(tmp_path) == {record.id}
