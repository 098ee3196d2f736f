"""S3, SQS, intake and pipeline together, while S3 fails: no file is lost, none is there twice."""

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from ingest.api import FileRecord, FileStatus
from ingest.blobs import BlobStore
from ingest.events.aws import AwsConfig
from ingest.events.consumer import Consumer, ConsumerConfig
from ingest.events.intake import Intake, IntakeConfig, IntakeParts
from ingest.events.objects import ObjectTable
from ingest.events.s3 import S3Source
from ingest.events.sqs import SqsQueue
from ingest.retry import RetryPolicy
from retrieval.api import SearchRequest
from tests.ingest.events.cloud import Cloud
from tests.ingest.events.gate import LIMIT_BYTES
from tests.ingest.events.messages_of_s3 import Told, direct, in_eventbridge, in_sns
from tests.ingest.house import House, PlainSandbox, open_house

pytestmark = [pytest.mark.services, pytest.mark.timeout(150)]

KEYS = [
    *("a b+c%2F.txt", "ünï/😀.txt", "100% sure.txt", "a//b.txt", "x?y#z&.txt"),
    *(f"case {number}/statement.txt" for number in range(7)),
]


class Story:
    """Changes a bucket, keeping what S3 would tell of it."""

    def __init__(self, cloud: Cloud, rng: Random) -> None:
        self.cloud, self.rng, self.bucket = cloud, rng, cloud.new_bucket()
        self.told: list[Told] = []
        self.holds: dict[str, str] = {}

    def put(self, key: str, text: str) -> None:
        answer = self.cloud.s3.put_object(Bucket=self.bucket, Key=key, Body=text.encode())
        self._tell(Told(key=key, size=len(text.encode()), etag=answer["ETag"]))
        self.holds[key] = text

    def remove(self, key: str) -> None:
        self.cloud.s3.delete_object(Bucket=self.bucket, Key=key)
        self._tell(Told(key=key, name="ObjectRemoved:Delete", size=None, etag=None))
        self.holds.pop(key, None)

    def messages(self) -> list[str]:
        """Every event three times, in any order, each time wrapped in one of S3's ways."""
        deliveries = self.told * 3
        self.rng.shuffle(deliveries)
        bodies: list[str] = []
        while deliveries:
            batch = [deliveries.pop() for _ in range(min(len(deliveries), self.rng.randint(1, 3)))]
            match self.rng.randrange(3):
                case 0:
                    bodies.append(direct(*batch))
                case 1:
                    bodies.append(in_sns(direct(*batch)))
                case _:
                    bodies.extend(in_eventbridge(told) for told in batch)
        return bodies

    def _tell(self, told: Told) -> None:
        sequencer = f"0066{len(self.told) + 1:08X}"
        self.told.append(replace(told, bucket=self.bucket, sequencer=sequencer))


def told_by(cloud: Cloud, seed: int) -> Story:
    rng = Random(seed)
    story = Story(cloud, rng)
    for number in range(24):
        key = rng.choice(KEYS)
        if rng.random() < 0.25:
            story.remove(key)
        else:
            story.put(key, f"Statement {number}. The witness saw ship {rng.randrange(5)}.")
    return story


async def intake_over(cloud: Cloud, house: House) -> Intake:
    """One attempt per call, so that every fault reaches the intake."""
    parts = IntakeParts(
        source=await S3Source.connect(AwsConfig(endpoint_url=cloud.url, max_attempts=1)),
        objects=ObjectTable(house.database, clock=time.time),
        blobs=house.blobs,
    )
    config = IntakeConfig(max_object_bytes=LIMIT_BYTES, pipeline_version=1)
    return Intake(parts, config, clock=time.time)


async def consume(cloud: Cloud, house: House, url: str) -> None:
    config = ConsumerConfig(wait_s=0, retry=RetryPolicy(base_delay_s=0, max_delay_s=0))
    queue = await SqsQueue.connect(url, cloud.aws)
    intake = await intake_over(cloud, house)
    taking = Consumer(queue, intake, config, rng=Random(1), nudge=_idle)
    async with asyncio.TaskGroup() as group:
        group.create_task(taking.run())
        while cloud.depth(url):
            await house.settle()
            await asyncio.sleep(0.05)
        taking.stop()
    await house.settle()


async def _idle() -> None:
    return


@pytest.mark.parametrize("share", [0.05, 0.3])
async def test_every_file_ends_processed_or_failed_with_a_cause(
    cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", cloud.url)
    story = told_by(cloud, seed=int(share * 100))
    huge = Told(key="huge.txt", size=2 << 30, bucket=story.bucket, sequencer="0066FF")
    url, dead = cloud.new_queue_with_dead_letters(max_receives=5)
    for body in [*story.messages(), direct(huge), '{"Event": "s3:TestEvent"}']:
        cloud.sqs.send_message(QueueUrl=url, MessageBody=body)
    kept = cloud.new_bucket()
    blobs = await BlobStore.connect(f"s3://{kept}/blobs")
    async with open_house(tmp_path, blobs=blobs, sandbox=PlainSandbox()) as house:
        with cloud.faults.striking(share, story.bucket, kept):
            await consume(cloud, house, url)
        assert cloud.faults.num_failures > 0
        files = await check_files(house, story)
    failed = {name for name, each in files.items() if each.status is FileStatus.ERROR}
    assert failed == {"huge.txt"} or cloud.depth(dead) > 0
    assert uploads_in(cloud, kept) == {files[name].id for name in set(files) - failed}


async def check_files(house: House, story: Story) -> dict[str, FileRecord]:
    page = await house.library.list(after=None, limit=100, ascending=True, purpose=None)
    files = {record.filename: record for record in page.files}
    assert len(files) == len(page.files), "two files of one object"
    assert set(files) == {*story.holds, "huge.txt"}, "a file is lost, or one too many"
    for name, record in files.items():
        if record.status is FileStatus.ERROR:
            assert record.cause
            continue
        assert record.status is FileStatus.PROCESSED
        assert (await house.library.text(record.id)).text == story.holds[name]
        found = await house.library.search(
            SearchRequest(query=story.holds[name], document_ids=[record.id])
        )
        assert [passage.text for passage in found.passages] == [story.holds[name]]
    return files


def uploads_in(cloud: Cloud, bucket: str) -> set[str]:
    listed = cloud.s3.list_objects_v2(Bucket=bucket, Prefix="blobs/uploads/")
    return {found["Key"].split("/")[-1] for found in listed.get("Contents", [])}
