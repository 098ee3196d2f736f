"""Takes messages from a queue until told to stop. Knows receipts and retries, not what is done."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random
from typing import Protocol

from ingest.api import TransientError
from ingest.events.intake import MessageFailed
from ingest.events.messages import Message, MessageQueue
from ingest.retry import RetryPolicy, delay_before

logger = logging.getLogger(__name__)

BEATS_PER_VISIBILITY = 3
DEFAULT_LAST_RECEIVE = 5
MESSAGE_RETRY = RetryPolicy(base_delay_s=30.0, max_delay_s=900.0)
POLL_RETRY = RetryPolicy(max_delay_s=30.0)


class Taker(Protocol):
    """The work behind a message; `ingest.events.intake.Intake` is one."""

    async def take(self, body: str, *, is_last: bool, within_s: float | None = None) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig:
    """`wait_s` bounds how long a stop waits for a poll under way (a call cannot be taken back).

    `retry` spreads the few receipts before a dead letter over minutes, so that they outlast a
    short trouble of S3; `poll_retry` is for the queue itself.
    """

    lanes: int = 2
    wait_s: int = 5
    visibility_s: int = 60
    within_s: float = 900.0
    stop_grace_s: float = 3.0
    retry: RetryPolicy = MESSAGE_RETRY
    poll_retry: RetryPolicy = POLL_RETRY

    def __post_init__(self) -> None:
        if self.lanes < 1 or self.visibility_s < 1 or self.within_s <= 0:
            raise ValueError("lanes, visibility_s and within_s must be positive")
        if not 0 <= self.wait_s <= 20:
            raise ValueError(f"SQS lets a poll wait 0 to 20 seconds, not {self.wait_s}")


class Consumer:
    """Each lane receives up to ten messages and takes them one after another.

    What is done is deleted, what failed comes again after a delay, and the queue's redrive policy
    ends the repetition. `nudge` is called when something may wait for the worker.
    """

    def __init__(
        self,
        queue: MessageQueue,
        taker: Taker,
        config: ConsumerConfig,
        *,
        rng: Random,
        nudge: Callable[[], Awaitable[None]],
    ) -> None:
        self._queue = queue
        self._taker = taker
        self._config = config
        self._rng = rng
        self._nudge = nudge
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Receive nothing more. Messages in hand get `stop_grace_s`, then go back to the queue."""
        self._stopping.set()

    async def run(self) -> None:
        """Returns after `stop`, when every lane has let go of its messages."""
        grace_s = self._config.stop_grace_s + self._config.wait_s
        async with asyncio.TaskGroup() as group:
            lanes = [group.create_task(self._lane()) for _ in range(self._config.lanes)]
            await self._stopping.wait()
            await asyncio.wait(lanes, timeout=grace_s)
            for lane in lanes:
                lane.cancel()

    async def run_until_empty(self) -> None:
        """Take what is visible now; returns at the first poll that brings nothing."""
        while messages := await self._receive():
            await self._take_all(messages)

    async def _lane(self) -> None:
        num_failures = 0
        while not self._stopping.is_set():
            try:
                await self._take_all(await self._receive())
                num_failures = 0
            except TransientError as error:
                num_failures += 1
                logger.warning("queue does not answer", extra={"cause": str(error)})
                await self._pause(
                    delay_before(num_failures + 1, self._config.poll_retry, self._rng)
                )

    async def _receive(self) -> Sequence[Message]:
        config = self._config
        return await self._queue.receive(wait_s=config.wait_s, visibility_s=config.visibility_s)

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return

    async def _take_all(self, messages: Sequence[Message]) -> None:
        in_hand = list(messages)
        try:
            async with self._hidden(in_hand):
                while in_hand and not self._stopping.is_set():
                    await self._take(in_hand[0])
                    in_hand.pop(0)
        finally:
            if in_hand:
                await asyncio.shield(self._tried(self._queue.hide(in_hand, 0)))

    async def _take(self, message: Message) -> None:
        """The message edge: whatever happens, it ends deleted or comes again."""
        last = self._queue.max_receives or DEFAULT_LAST_RECEIVE
        try:
            await self._taker.take(
                message.body,
                is_last=message.num_receives >= last,
                within_s=self._config.within_s,
            )
        except MessageFailed as error:
            await self._again(message, str(error))
        except Exception as error:
            logger.exception("message failed", extra={"message_id": message.id})
            await self._again(message, f"an unexpected {type(error).__name__}")
        else:
            await self._tried(self._queue.delete([message]))
        await self._nudge()

    async def _again(self, message: Message, cause: str) -> None:
        delay_s = delay_before(message.num_receives + 1, self._config.retry, self._rng)
        fields = {"message_id": message.id, "receives": message.num_receives, "cause": cause}
        logger.warning("message will come again", extra=fields)
        await self._tried(self._queue.hide([message], delay_s))

    async def _tried(self, call: Awaitable[None]) -> None:
        """A call whose failure only makes a message come again, at another time."""
        try:
            await call
        except TransientError as error:
            logger.warning("queue does not answer", extra={"cause": str(error)})

    @asynccontextmanager
    async def _hidden(self, in_hand: Sequence[Message]) -> AsyncIterator[None]:
        """Keep the messages still in hand from other consumers while work runs."""
        async with asyncio.TaskGroup() as group:
            beating = group.create_task(self._beat(in_hand))
            yield
            beating.cancel()

    async def _beat(self, in_hand: Sequence[Message]) -> None:
        while True:
            await asyncio.sleep(self._config.visibility_s / BEATS_PER_VISIBILITY)
            if in_hand:
                await self._tried(self._queue.hide(tuple(in_hand), self._config.visibility_s))
