"""A `MessageQueue` over SQS through boto3, whose calls run in threads. Knows no S3 object."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar, cast

import msgspec

from ingest.api import TransientError
from ingest.events.aws import AwsConfig, CallRefused, make_client, translated
from ingest.events.messages import Message

logger = logging.getLogger(__name__)

MAX_BATCH = 10
MAX_VISIBILITY_S = 43_200

Answer = TypeVar("Answer")
Entry = dict[str, str | int]


class SqsClient(Protocol):
    """What is used of boto3's client."""

    def get_queue_attributes(
        self, *, QueueUrl: str, AttributeNames: list[str]
    ) -> Mapping[str, object]: ...

    def receive_message(
        self,
        *,
        QueueUrl: str,
        MaxNumberOfMessages: int,
        WaitTimeSeconds: int,
        VisibilityTimeout: int,
        MessageSystemAttributeNames: list[str],
    ) -> Mapping[str, object]: ...

    def delete_message_batch(
        self, *, QueueUrl: str, Entries: list[Entry]
    ) -> Mapping[str, object]: ...

    def change_message_visibility_batch(
        self, *, QueueUrl: str, Entries: list[Entry]
    ) -> Mapping[str, object]: ...


class Received(msgspec.Struct, frozen=True, rename="pascal"):
    message_id: str
    receipt_handle: str
    body: str = ""
    attributes: dict[str, str] = msgspec.field(default_factory=dict)


class Redrive(msgspec.Struct, frozen=True, rename="camel"):
    max_receive_count: int


class SqsQueue:
    def __init__(self, client: SqsClient, url: str, max_receives: int | None) -> None:
        self._client = client
        self._url = url
        self._max_receives = max_receives

    @classmethod
    async def connect(cls, url: str, config: AwsConfig) -> "SqsQueue":
        """Raises ValueError when the queue cannot be asked for its redrive policy."""
        client = cast(SqsClient, await asyncio.to_thread(make_client, "sqs", config))
        try:
            answer = await _called(
                lambda: client.get_queue_attributes(QueueUrl=url, AttributeNames=["RedrivePolicy"])
            )
        except (CallRefused, TransientError) as error:
            raise ValueError(f"the queue {url} cannot be used: {error}") from error
        max_receives = _max_receives(answer.get("Attributes"))
        if max_receives is None:
            logger.warning("queue has no dead letters", extra={"queue": url})
        return cls(client, url, max_receives)

    @property
    def max_receives(self) -> int | None:
        return self._max_receives

    async def receive(self, *, wait_s: int, visibility_s: int) -> Sequence[Message]:
        answer = await _transient(
            lambda: self._client.receive_message(
                QueueUrl=self._url,
                MaxNumberOfMessages=MAX_BATCH,
                WaitTimeSeconds=wait_s,
                VisibilityTimeout=visibility_s,
                MessageSystemAttributeNames=["ApproximateReceiveCount"],
            )
        )
        received = msgspec.convert(answer.get("Messages", []), list[Received])
        return [
            Message(
                id=each.message_id,
                receipt=each.receipt_handle,
                body=each.body,
                num_receives=int(each.attributes.get("ApproximateReceiveCount", "1")),
            )
            for each in received
        ]

    async def delete(self, messages: Sequence[Message]) -> None:
        entries: list[Entry] = [
            {"Id": str(number), "ReceiptHandle": message.receipt}
            for number, message in enumerate(messages)
        ]
        _warn_of_failures(
            await _transient(
                lambda: self._client.delete_message_batch(QueueUrl=self._url, Entries=entries)
            )
        )

    async def hide(self, messages: Sequence[Message], seconds: float) -> None:
        visible_in_s = min(MAX_VISIBILITY_S, max(0, round(seconds)))
        entries: list[Entry] = [
            {
                "Id": str(number),
                "ReceiptHandle": message.receipt,
                "VisibilityTimeout": visible_in_s,
            }
            for number, message in enumerate(messages)
        ]
        _warn_of_failures(
            await _transient(
                lambda: self._client.change_message_visibility_batch(
                    QueueUrl=self._url, Entries=entries
                )
            )
        )


async def _called(call: Callable[[], Answer]) -> Answer:
    with translated():
        return await asyncio.to_thread(call)


async def _transient(call: Callable[[], Answer]) -> Answer:
    try:
        return await _called(call)
    except CallRefused as error:
        raise TransientError(f"SQS refuses: {error}") from error


def _max_receives(attributes: object) -> int | None:
    match attributes:
        case {"RedrivePolicy": str(policy)}:
            try:
                # SQS allows the count as a string too.
                return msgspec.json.decode(policy, type=Redrive, strict=False).max_receive_count
            except msgspec.DecodeError as error:
                raise ValueError(f"the queue's redrive policy cannot be read: {error}") from error
    return None


def _warn_of_failures(answer: Mapping[str, object]) -> None:
    """What is not deleted or hidden comes again, and changes nothing then."""
    failed = answer.get("Failed")
    if failed:
        logger.warning("queue refused part of a batch", extra={"failed": str(failed)[:500]})
