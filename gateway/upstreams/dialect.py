"""What a server's way of speaking must provide, and how token ids are written for all of them.

Knows no server and no HTTP.
"""

from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import msgspec

from engines.api import Event, FinishReason, GenerateRequest, Reads

IDS_PIECE = 8192
INLINE_IDS = 16_384
"""About a millisecond of writing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How an answer ended, in the server's own counts; None where it told none."""

    reason: FinishReason
    prompt_tokens: int | None
    completion_tokens: int | None
    cached_tokens: int = 0
    reasoning_tokens: int = 0


class Reader(Protocol):
    """Makes events of one answer's data, in order."""

    def read(self, data: bytes) -> Iterable[Event]:
        """No FinishEvent. Raises EngineLost for data that cannot be read, and what it says."""
        ...

    def ending(self) -> Ending | None:
        """None until every answer has ended."""
        ...


class Dialect(Protocol):
    @property
    def path(self) -> str: ...

    @property
    def reads(self) -> Reads: ...

    @property
    def passes(self) -> tuple[str, ...]:
        """The fields of OpenAI's chat API that it is sent as the caller wrote them."""
        ...

    @property
    def inline_tokens(self) -> int:
        """A longer prompt's body is written in a thread."""
        ...

    def body(self, request: GenerateRequest, model: str) -> bytes:
        """The request as this server reads it; `model` is its name there.

        Blocking for long prompts. Raises EngineRefused for what it cannot say.
        """
        ...

    def reader(self, request: GenerateRequest) -> Reader: ...


def ids_json(ids: "array[int]") -> msgspec.Raw:
    """Piece by piece, so that a thread that writes a million ids lets others run."""
    pieces = (
        msgspec.json.encode(ids[start : start + IDS_PIECE].tolist())[1:-1]
        for start in range(0, len(ids), IDS_PIECE)
    )
    return msgspec.Raw(b"[" + b",".join(pieces) + b"]")


def reason_of(told: str) -> FinishReason | None:
    """None for words that mean no good ending, such as `abort`."""
    return REASONS.get(told)


REASONS = {
    "stop": FinishReason.STOP,
    "eos": FinishReason.STOP,
    "word": FinishReason.STOP,
    "end_turn": FinishReason.STOP,
    "length": FinishReason.LENGTH,
    "limit": FinishReason.LENGTH,
    "max_tokens": FinishReason.LENGTH,
    "tool_calls": FinishReason.TOOL_CALLS,
    "function_call": FinishReason.TOOL_CALLS,
    "content_filter": FinishReason.CONTENT_FILTER,
}
