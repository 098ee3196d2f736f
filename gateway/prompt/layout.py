"""Messages whose texts have slots, laid out by the chat template into pieces.

Slots carry documents and marks through the template, so that their places in the rendered text
are known exactly and the template never handles megabytes. Special tokens in a caller's text
travel in slots too: what the template itself wrote is control, everything else is data.
"""

import json
import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

from gateway.asks import Image, ToolCall
from gateway.prompt.template import ChatTemplate

QUESTION = -1
"""The slot, without text, at which the question begins."""

LONG_CHARS = 65_536
SEEN_CHARS = 2048
"""A template sees this much of either end of a long text of the user or the system, so that it
can strip or recognise it; the middle travels in a slot. What an assistant said, templates may
take apart, so they see it whole."""


@dataclass(frozen=True, slots=True)
class Slot:
    """`key` is a source's index, or QUESTION; None for text that needs no place."""

    text: str
    key: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SlottedMessage:
    role: str
    content: tuple[str | Slot, ...]
    name: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    images: tuple[Image, ...] = ()
    """For engines that read chat; a template has no place for them."""

    @property
    def text(self) -> str:
        """What its slots hold is part of it."""
        return "".join(part if isinstance(part, str) else part.text for part in self.content)


@dataclass(frozen=True, slots=True)
class Control:
    """A special token that the template wrote."""

    text: str


@dataclass(frozen=True, slots=True)
class Place:
    """Characters [start, stop) of piece number `piece`."""

    piece: int
    start: int
    stop: int


Piece = Control | str | tuple[str, ...]
"""A text may come as its parts, so that a long one is never copied."""


@dataclass(frozen=True, slots=True)
class Layout:
    pieces: tuple[Piece, ...]
    places: Mapping[int, Place]

    def joined(self) -> "Layout":
        """The same in a single piece, for a tokenizer that must see the prompt as a whole."""
        texts = [
            piece.text if isinstance(piece, Control) else "".join(piece) for piece in self.pieces
        ]
        before = [0, *accumulate(map(len, texts))]
        places = {
            key: Place(0, before[place.piece] + place.start, before[place.piece] + place.stop)
            for key, place in self.places.items()
        }
        return Layout(("".join(texts),), places)


def lay_out(
    messages: Sequence[SlottedMessage],
    template: ChatTemplate,
    specials: Iterable[str],
    tools: Sequence[Mapping[str, object]] = (),
    *,
    opens_answer: bool = True,
) -> Layout:
    """Render the messages, and the tools for a template that knows them. Raises TemplateRefused."""
    special, revealing = _patterns(frozenset(specials))
    slots: list[Slot] = []
    # Unguessable, so that no caller's text can pose as a slot.
    nonce = secrets.token_hex(8)

    def hide(slot: Slot) -> str:
        slots.append(slot)
        return f"\ue000{nonce}-{len(slots) - 1}\ue001"

    def literal(text: str) -> str:
        if special is None:
            return text
        return special.sub(lambda match: hide(Slot(match.group(), None)), text)

    spoken: list[dict[str, object]] = []
    for message in messages:
        parts = [slim for part in message.content for slim in _slimmed(part, message.role)]
        content = "".join(literal(part) if isinstance(part, str) else hide(part) for part in parts)
        spoken.append({"role": message.role, "content": content})
        spoken[-1].update(_extras(message, literal))
    rendered = template.render(
        spoken,
        [{k: within(v, literal) for k, v in t.items()} for t in tools],
        opens_answer=opens_answer,
    )
    return _reveal(rendered, revealing, nonce, slots)


@lru_cache(maxsize=64)
def _patterns(specials: frozenset[str]) -> "tuple[re.Pattern[str] | None, re.Pattern[str]]":
    """A special token; and a slot, by nonce and number, or a special token."""
    names = "|".join(map(re.escape, sorted(specials, key=len, reverse=True)))
    slot = "\ue000([0-9a-f]{16})-([0-9]+)\ue001"
    revealing = re.compile(f"{slot}|{names}" if names else slot)
    return (re.compile(names) if names else None), revealing


def _slimmed(part: str | Slot, role: str) -> tuple[str | Slot, ...]:
    if not isinstance(part, str) or len(part) <= LONG_CHARS or role == "assistant":
        return (part,)
    head, tail = part[:SEEN_CHARS], part[-SEEN_CHARS:]
    if head.isspace() or tail.isspace():
        return (part,)
    return head, Slot(part[SEEN_CHARS:-SEEN_CHARS], None), tail


def _extras(message: SlottedMessage, literal: Callable[[str], str]) -> dict[str, object]:
    """The fields that most messages do not have."""
    extras: dict[str, object] = {}
    if message.name is not None:
        extras["name"] = literal(message.name)
    if message.tool_call_id is not None:
        extras["tool_call_id"] = literal(message.tool_call_id)
    if message.tool_calls:
        extras["tool_calls"] = [
            {
                "id": literal(call.id),
                "type": "function",
                "function": {
                    "name": literal(call.name),
                    "arguments": within(_arguments(call.arguments), literal),
                },
            }
            for call in message.tool_calls
        ]
    return extras


def _arguments(text: str) -> object:
    """Templates take an object; what is none stays text."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, dict) else text


def within(value: object, change: Callable[[str], str]) -> object:
    """The same JSON value with every string changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {change(str(key)): within(inner, change) for key, inner in value.items()}
    if isinstance(value, list):
        return [within(inner, change) for inner in value]
    return value


class _Writer:
    """Collects text into pieces that end at control tokens."""

    def __init__(self) -> None:
        self.pieces: list[Piece] = []
        self.places: dict[int, Place] = {}
        self._texts: list[str] = []
        self._num_chars = 0

    def text(self, text: str) -> None:
        self._texts.append(text)
        self._num_chars += len(text)

    def slot(self, slot: Slot) -> None:
        if slot.key is not None:
            stop = self._num_chars + len(slot.text)
            self.places[slot.key] = Place(len(self.pieces), self._num_chars, stop)
        self.text(slot.text)

    def control(self, text: str) -> None:
        self.close()
        self.pieces.append(Control(text))

    def close(self) -> None:
        if self._num_chars:
            is_long = self._num_chars > LONG_CHARS
            self.pieces.append(tuple(self._texts) if is_long else "".join(self._texts))
        self._texts.clear()
        self._num_chars = 0


def _reveal(rendered: str, pattern: "re.Pattern[str]", nonce: str, slots: Sequence[Slot]) -> Layout:
    writer = _Writer()
    end = 0
    for match in pattern.finditer(rendered):
        if match.group(1) not in (None, nonce):
            continue
        writer.text(rendered[end : match.start()])
        end = match.end()
        if match.group(1) is None:
            writer.control(match.group())
        else:
            writer.slot(slots[int(match.group(2))])
    writer.text(rendered[end:])
    writer.close()
    return Layout(tuple(writer.pieces), writer.places)
