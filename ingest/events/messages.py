"""A queue whose messages come again until they are deleted. Knows neither SQS nor S3."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """`num_receives` counts this time; `receipt` names this receipt."""

    id: str
    receipt: str
    body: str
    num_receives: int


class MessageQueue(Protocol):
    """All methods raise TransientError; at most ten messages are handled by one call."""

    @property
    def max_receives(self) -> int | None:
        """After so many receipts the queue itself moves a message away; None: never."""
        ...

    async def receive(self, *, wait_s: int, visibility_s: int) -> Sequence[Message]:
        """Wait for messages; nobody else gets them for `visibility_s` seconds."""
        ...

    async def delete(self, messages: Sequence[Message]) -> None: ...

    async def hide(self, messages: Sequence[Message], seconds: float) -> None:
        """Keep them from others for so long from now; 0 gives them back."""
        ...
