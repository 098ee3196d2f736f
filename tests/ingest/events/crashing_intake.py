"""A consumer process that kills itself at one stage; run by the crash tests only.

`python -m tests.ingest.events.crashing_intake DATA_DIR QUEUE_URL ENDPOINT STAGE`
"""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from random import Random

from ingest.blobs import BlobStore, Stored
from ingest.database import Database, sqlite_url
from ingest.events.aws import AwsConfig
from ingest.events.consumer import Consumer, ConsumerConfig
from ingest.events.intake import Intake, IntakeConfig, IntakeParts
from ingest.events.messages import Message
from ingest.events.objects import ObjectTable, Proposal, Settled
from ingest.events.s3 import S3Source
from ingest.events.source import Seen
from ingest.events.sqs import SqsQueue

STAGES = ("received", "looked", "reading", "copied", "settled", "deleted")


class Mortal:
    """Dies when it is told that the stage is reached."""

    def __init__(self, stage: str) -> None:
        self._stage = stage

    def reach(self, here: str) -> None:
        if here == self._stage:
            os.kill(os.getpid(), signal.SIGKILL)


class MortalSource:
    def __init__(self, inner: S3Source, mortal: Mortal) -> None:
        self._inner, self._mortal = inner, mortal

    async def look(self, bucket: str, key: str) -> Seen | None:
        seen = await self._inner.look(bucket, key)
        self._mortal.reach("looked")
        return seen

    async def read(self, bucket: str, key: str, seen: Seen) -> AsyncIterator[bytes]:
        async for piece in self._inner.read(bucket, key, seen):
            yield piece
            self._mortal.reach("reading")


class MortalBlobs(BlobStore):
    mortal = Mortal("")

    async def put_stream(self, key: str, body: AsyncIterator[bytes], *, limit_bytes: int) -> Stored:
        stored = await super().put_stream(key, body, limit_bytes=limit_bytes)
        self.mortal.reach("copied")
        return stored


class MortalTable(ObjectTable):
    mortal = Mortal("")

    async def settle(self, proposal: Proposal) -> Settled:
        settled = await super().settle(proposal)
        self.mortal.reach("settled")
        return settled


class MortalQueue(SqsQueue):
    mortal = Mortal("")

    async def receive(self, *, wait_s: int, visibility_s: int) -> Sequence[Message]:
        messages = await super().receive(wait_s=wait_s, visibility_s=visibility_s)
        self.mortal.reach("received")
        return messages

    async def delete(self, messages: Sequence[Message]) -> None:
        await super().delete(messages)
        self.mortal.reach("deleted")


async def main(data_dir: Path, url: str, endpoint: str, stage: str) -> None:
    MortalBlobs.mortal = MortalTable.mortal = MortalQueue.mortal = mortal = Mortal(stage)
    aws = AwsConfig(endpoint_url=endpoint)
    database = await Database.connect(sqlite_url(data_dir / "metadata.db"))
    parts = IntakeParts(
        source=MortalSource(await S3Source.connect(aws), mortal),
        objects=MortalTable(database, clock=time.time),
        blobs=MortalBlobs.in_folder(data_dir / "blobs"),
    )
    intake = Intake(
        parts, IntakeConfig(max_object_bytes=1 << 20, pipeline_version=1), clock=time.time
    )
    queue = await MortalQueue.connect(url, aws)
    config = ConsumerConfig(wait_s=0, visibility_s=1)
    await Consumer(queue, intake, config, rng=Random(1), nudge=_idle).run_until_empty()


async def _idle() -> None:
    return


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), *sys.argv[2:5]))
