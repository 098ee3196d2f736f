"""How a wire format says answers: what every format gives, and what they share.

Knows events and bytes; no format, no HTTP. `gateway.chat` answers any Ask in any Spelling.
"""

from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Protocol

from gateway import sse
from gateway.answers import Answered, AnswerEvent, Called, ChoiceEnded, Progress, Said, SpelledToken
from gateway.asks import Ask


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """What every object of one answer carries."""

    id: str
    created: int
    model: str
    service_tier: str
    system_fingerprint: str
    policy_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HeardCall:
    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HeardChoice:
    """One choice as a whole."""

    index: int
    text: str
    tokens: tuple[SpelledToken, ...]
    calls: tuple[HeardCall, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """A whole answer: its choices in order, and its end."""

    choices: tuple[HeardChoice, ...]
    end: Answered


class Speech(Protocol):
    """Spells one answer as the bytes of a stream."""

    def frames(self, event: AnswerEvent) -> Iterator[bytes]: ...

    def failure(self, error: Exception) -> Iterator[bytes]:
        """The frames of a failure after the first byte; nothing follows them."""
        ...


class Spelling(Protocol):
    """A wire format. `endpoint` names it in metrics and logs; ids begin with `id_prefix`."""

    @property
    def endpoint(self) -> str: ...

    @property
    def id_prefix(self) -> str: ...

    def whole(self, ask: Ask, heard: Heard, signature: Signature) -> Mapping[str, object]: ...

    def speech(self, ask: Ask, signature: Signature) -> Speech: ...


async def hear(events: AsyncGenerator[AnswerEvent, None]) -> Heard:
    """The whole answer. Raises what `events` raise."""
    ear = Ear()
    async with aclosing(events):
        async for event in events:
            if isinstance(event, Answered):
                return ear.heard(event)
            ear.take(event)
    raise AssertionError("an answer ends with Answered")


class Ear:
    """Hears the events of an answer, in order, and remembers them."""

    def __init__(self) -> None:
        self._said: dict[int, list[Said]] = {}
        self._called: dict[tuple[int, int], list[Called]] = {}
        self._reasons: dict[int, str] = {}

    def take(self, event: AnswerEvent) -> None:
        match event:
            case Said():
                self._said.setdefault(event.index, []).append(event)
            case Called():
                self._called.setdefault((event.index, event.call), []).append(event)
            case ChoiceEnded():
                self._reasons[event.index] = event.reason.value

    def heard(self, end: Answered) -> Heard:
        choices = tuple(self._choice(index) for index in sorted(self._reasons))
        return Heard(choices=choices, end=end)

    def _choice(self, index: int) -> HeardChoice:
        said = self._said.get(index, [])
        calls = [pieces for (of, _), pieces in sorted(self._called.items()) if of == index]
        return HeardChoice(
            index=index,
            text="".join(one.text for one in said),
            tokens=tuple(token for one in said for token in one.tokens),
            calls=tuple(_call(pieces) for pieces in calls),
            reason=self._reasons[index],
        )


def _call(pieces: list[Called]) -> HeardCall:
    first = pieces[0]
    return HeardCall(
        id=first.id or "",
        name=first.name or "",
        arguments="".join(piece.arguments for piece in pieces),
    )


class ProgressComments:
    """Prefill's progress as comments, one per percent, for streams that are silent meanwhile."""

    def __init__(self) -> None:
        self._percent = -1

    def frames(self, event: Progress) -> Iterator[bytes]:
        percent = 100 * event.done_tokens // max(1, event.total_tokens)
        if percent != self._percent:
            self._percent = percent
            yield sse.comment(f"prefill {percent} % of {event.total_tokens} tokens")
