"""Messages of a real queue protocol: deleted when done, kept while in work, never lost."""

import asyncio
from collections.abc import Sequence
from random import Random

import pytest

from ingest.api import TransientError
from ingest.events.consumer import Consumer, ConsumerConfig
from ingest.events.intake import MessageFailed
from ingest.events.messages import Message, MessageQueue
from ingest.events.sqs import SqsQueue
from ingest.retry import RetryPolicy
from tests.ingest.events.cloud import Cloud
from tests.ingest.house import eventually

pytestmark = pytest.mark.services

AT_ONCE = RetryPolicy(base_delay_s=0, max_delay_s=0)


class Script:
    """Takes messages as their bodies say: "ok", "fail", "crash", or "sleep N"."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, bool]] = []
        self.begun = asyncio.Event()

    async def take(self, body: str, *, is_last: bool, within_s: float | None = None) -> None:
        self.taken.append((body, is_last))
        self.begun.set()
        match body.split():
            case ["sleep", seconds]:
                await asyncio.sleep(float(seconds))
            case ["fail"]:
                raise MessageFailed(("scripted",))
            case ["crash"]:
                raise RuntimeError("scripted")


async def nudge() -> None:
    return


def consumer(queue: MessageQueue, script: Script, **settings: float) -> Consumer:
    config = ConsumerConfig(
        lanes=1,
        wait_s=0,
        visibility_s=int(settings.get("visibility_s", 30)),
        stop_grace_s=settings.get("stop_grace_s", 0.2),
        retry=AT_ONCE,
        poll_retry=AT_ONCE,
    )
    return Consumer(queue, script, config, rng=Random(1), nudge=nudge)


def visible(cloud: Cloud, url: str) -> list[str]:
    answer = cloud.sqs.receive_message(
        QueueUrl=url, MaxNumberOfMessages=10, VisibilityTimeout=0, WaitTimeSeconds=0
    )
    return sorted(message["Body"] for message in answer.get("Messages", []))


async def test_what_fails_comes_again_and_ends_among_the_dead_letters(cloud: Cloud) -> None:
    url, dead = cloud.new_queue_with_dead_letters(max_receives=3)
    for body in ("ok", "fail", "ok", "crash"):
        cloud.sqs.send_message(QueueUrl=url, MessageBody=body)
    script = Script()
    queue = await SqsQueue.connect(url, cloud.aws)
    assert queue.max_receives == 3
    await consumer(queue, script).run_until_empty()
    assert cloud.depth(url) == 0
    assert visible(cloud, dead) == ["crash", "fail"]
    assert sorted(script.taken) == sorted(
        [("ok", False)] * 2
        + [(body, is_last) for body in ("fail", "crash") for is_last in (False, False, True)]
    )


async def test_a_message_in_work_stays_hidden_longer_than_its_timeout(cloud: Cloud) -> None:
    url = cloud.new_queue()
    for body in ("sleep 4.2", "sleep 0"):
        cloud.sqs.send_message(QueueUrl=url, MessageBody=body)
    script = Script()
    taking = consumer(await SqsQueue.connect(url, cloud.aws), script, visibility_s=3)
    async with asyncio.TaskGroup() as group:
        group.create_task(taking.run_until_empty())
        await script.begun.wait()
        await asyncio.sleep(3.5)
        assert visible(cloud, url) == []
    assert sorted(script.taken) == [("sleep 0", False), ("sleep 4.2", False)]
    assert cloud.depth(url) == 0


async def test_a_stop_finishes_the_message_in_hand_and_gives_the_others_back(
    cloud: Cloud,
) -> None:
    url = cloud.new_queue()
    for _ in range(3):
        cloud.sqs.send_message(QueueUrl=url, MessageBody="sleep 0.5")
    script = Script()
    taking = consumer(await SqsQueue.connect(url, cloud.aws), script, stop_grace_s=10)
    async with asyncio.TaskGroup() as group:
        group.create_task(taking.run())
        await script.begun.wait()
        taking.stop()
    assert len(script.taken) == 1
    assert visible(cloud, url) == ["sleep 0.5"] * 2


async def test_a_stop_does_not_wait_for_a_hung_message_but_gives_it_back(cloud: Cloud) -> None:
    url = cloud.new_queue()
    cloud.sqs.send_message(QueueUrl=url, MessageBody="sleep 600")
    script = Script()
    taking = consumer(await SqsQueue.connect(url, cloud.aws), script)
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        group.create_task(taking.run())
        await script.begun.wait()
        taking.stop()
    assert visible(cloud, url) == ["sleep 600"]


async def test_a_queue_that_is_not_there_is_refused_at_the_start(cloud: Cloud) -> None:
    with pytest.raises(ValueError, match="cannot be used"):
        await SqsQueue.connect(f"{cloud.url}/123456789012/no-such-queue", cloud.aws)


class BrokenQueue:
    """Fails every second call."""

    max_receives = 5

    def __init__(self, bodies: Sequence[str]) -> None:
        self._bodies = list(bodies)
        self._num_calls = 0

    def _fail_sometimes(self) -> None:
        self._num_calls += 1
        if self._num_calls % 2:
            raise TransientError("SQS is out")

    async def receive(self, *, wait_s: int, visibility_s: int) -> Sequence[Message]:
        await asyncio.sleep(0)
        self._fail_sometimes()
        if not self._bodies:
            return []
        return [Message(id="1", receipt="1", body=self._bodies.pop(), num_receives=1)]

    async def delete(self, messages: Sequence[Message]) -> None:
        self._fail_sometimes()

    async def hide(self, messages: Sequence[Message], seconds: float) -> None:
        self._fail_sometimes()


async def test_a_queue_that_fails_now_and_then_stops_nothing() -> None:
    script = Script()
    taking = consumer(BrokenQueue(["ok", "fail", "ok", "crash"]), script)

    async def all_taken() -> bool:
        return len(script.taken) == 4

    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        group.create_task(taking.run())
        await eventually(all_taken)
        taking.stop()
