"""Messages whose texts have slots, laid out by the chat template into pieces.

Slots carry documents and marks through the template, so that their places in the rendered text
are known exactly and the template never handles megabytes. Special tokens in a caller's text
travel in slots too: what the template itself wrote is control, everything else is data.
"""

import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from gateway.prompt.template import ChatTemplate

QUESTION = -1
"""The slot, without text, at which the question begins."""


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


@dataclass(frozen=True, slots=True)
class Layout:
    pieces: tuple[Control | str, ...]
    places: Mapping[int, Place]

    def joined(self) -> "Layout":
        """The same in a single piece, for a tokenizer that must see the prompt as a whole."""
        texts = [piece if isinstance(piece, str) else piece.text for piece in self.pieces]
        before = [0, *accumulate(map(len, texts))]
        places = {
            key: Place(0, before[place.piece] + place.start, before[place.piece] + place.stop)
            for key, place in self.places.items()
        }
        return Layout(("".join(texts),), places)


def lay_out(
    messages: Sequence[SlottedMessage], template: ChatTemplate, specials: Iterable[str]
) -> Layout:
    """Render the messages. Raises TemplateRefused."""
    names = sorted(specials, key=len, reverse=True)
    special = re.compile("|".join(map(re.escape, names))) if names else None
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

    spoken = []
    for message in messages:
        content = "".join(
            literal(part) if isinstance(part, str) else hide(part) for part in message.content
        )
        spoken.append({"role": message.role, "content": content})
        if message.name is not None:
            spoken[-1]["name"] = literal(message.name)
    rendered = template.render(spoken)
    control = f"|{special.pattern}" if special else ""
    return _reveal(rendered, re.compile(f"\ue000{nonce}-(\\d+)\ue001{control}"), slots)


class _Writer:
    """Collects text into pieces that end at control tokens."""

    def __init__(self) -> None:
        self.pieces: list[Control | str] = []
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
            self.pieces.append("".join(self._texts))
        self._texts.clear()
        self._num_chars = 0


def _reveal(rendered: str, pattern: "re.Pattern[str]", slots: Sequence[Slot]) -> Layout:
    writer = _Writer()
    end = 0
    for match in pattern.finditer(rendered):
        writer.text(rendered[end : match.start()])
        end = match.end()
        if match.group(1) is None:
            writer.control(match.group())
        else:
            writer.slot(slots[int(match.group(1))])
    writer.text(rendered[end:])
    writer.close()
    return Layout(tuple(writer.pieces), writer.places)
