"""Splits a prompt into context and question; pure, knows neither tokens nor templates.

Attached files and `documents` are context. So is a long text inside a user's message: its closing
paragraphs are the question, an opening line that asks or introduces stays with the question, and
what lies between is context. System messages stay with both.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from gateway.asks import Image, Turn
from ingest.api import InlineDocument, StoredText

MAX_QUESTION_CHARS = 2000
MAX_LEAD_CHARS = 400

LEAD_WINDOW = 4096
CLOSING_WINDOW = 16_384
TAIL_CHARS = 4096
"""How much of a text's ends is looked at: questions and introductions with room for blank lines."""

PARAGRAPH = re.compile(r"\n[ \t]*\n\s*")
SPACE = re.compile(r"\s*")
SENTENCE = re.compile(r"(?<=[.!?])\s+")


class SourceKind(StrEnum):
    FILE = "file"
    DOCUMENT = "document"
    PROMPT = "prompt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A text that can be searched and cited.

    `base` is what to add to an offset in `text` to get one in what the caller holds: for a
    PROMPT source, characters of its message's text.
    """

    kind: SourceKind
    id: str
    name: str
    text: str
    base: int = 0


@dataclass(frozen=True, slots=True)
class Split:
    """text[:start] introduces, text[start:stop] is context, text[stop:] asks."""

    start: int
    stop: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentedTurn:
    """`attached` sources come before the text; `inline` is the one inside it, at `split`.

    Both are indices into the sources of the prompt.
    """

    turn: Turn
    attached: tuple[int, ...] = ()
    split: Split | None = None
    inline: int | None = None

    @property
    def asking(self) -> str:
        """The text without its context."""
        if self.split is None:
            return self.turn.text
        lead = self.turn.text[: self.split.start].strip()
        return f"{lead}\n\n{self.closing}" if lead else self.closing

    @property
    def closing(self) -> str:
        """The text behind its context, with which `asking` ends."""
        text = self.turn.text
        return text if self.split is None else text[self.split.stop :].strip()

    @property
    def asking_images(self) -> tuple[Image, ...]:
        """The images of the turn in their places in `asking`."""
        most = len(self.closing)
        return tuple(
            replace(image, tail_chars=min(image.tail_chars, most)) for image in self.turn.images
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Segmented:
    turns: tuple[SegmentedTurn, ...]
    sources: tuple[Source, ...]
    tools: tuple[Mapping[str, object], ...] = ()
    """OpenAI's objects of the functions that the answer may call, for the template."""
    opens_answer: bool = True
    """Whether the prompt ends with what the template writes before an answer."""

    @property
    def question_turn(self) -> int:
        """Index of the last user message; of the last message when no user speaks."""
        asking = [i for i, one in enumerate(self.turns) if one.turn.role == "user"]
        return asking[-1] if asking else len(self.turns) - 1

    @property
    def question(self) -> str:
        return self.turns[self.question_turn].asking.strip()


def segment(
    turns: Sequence[Turn],
    files: Mapping[str, StoredText],
    documents: Sequence[InlineDocument],
    *,
    least_context_chars: int,
) -> Segmented:
    """`files` holds the text of every file that the turns attach. `documents` go to the last
    user message, a file to the first message that names it."""
    asking = [i for i, turn in enumerate(turns) if turn.role == "user"]
    last = asking[-1] if asking else len(turns) - 1
    sources: list[Source] = []
    placed: set[str] = set()
    segmented = []
    for i, turn in enumerate(turns):
        attached = [file_source(files[one]) for one in turn.file_ids if one not in placed]
        placed.update(turn.file_ids)
        if i == last:
            attached += [_document(document) for document in documents]
        first = len(sources)
        sources += attached
        split = split_text(turn.text, least_context_chars) if turn.role == "user" else None
        if split is not None:
            sources.append(_inline(turn.text, split, "prompt" if i == last else f"prompt-{i}"))
        segmented.append(
            SegmentedTurn(
                turn=turn,
                attached=tuple(range(first, first + len(attached))),
                split=split,
                inline=None if split is None else len(sources) - 1,
            )
        )
    return Segmented(turns=tuple(segmented), sources=tuple(sources))


def split_text(text: str, least_context_chars: int) -> Split | None:
    """Where the context of a message lies; None when it has less than `least_context_chars`.

    Looks at both ends only: a message may have megabytes.
    """
    if len(text) < least_context_chars:
        return None
    asks_from = _closing_start(text)
    start = _first_ink(text, _lead_stop(text[: min(asks_from, LEAD_WINDOW)]), asks_from)
    stop = _last_ink(text, start, asks_from)
    is_split = stop - start >= least_context_chars and _first_ink(text, asks_from) < len(text)
    return Split(start, stop) if is_split else None


def _first_ink(text: str, start: int, stop: int | None = None) -> int:
    """Where text[start:stop] without its leading whitespace begins."""
    found = SPACE.match(text, start, len(text) if stop is None else stop)
    assert found is not None, "no space is a match, too"
    return found.end()


def _last_ink(text: str, start: int, stop: int) -> int:
    """Where text[start:stop] without its trailing whitespace ends."""
    while stop > start:
        tail = text[max(start, stop - TAIL_CHARS) : stop]
        kept = len(tail.rstrip())
        if kept:
            return stop - len(tail) + kept
        stop -= len(tail)
    return start


def _closing_start(text: str) -> int:
    """Start of the closing paragraphs; of the closing line or sentence in a text without any."""
    end = _last_ink(text, 0, len(text))
    window = max(0, end - CLOSING_WINDOW)
    paragraphs = [m.end() for m in PARAGRAPH.finditer(text, window, end)]
    if paragraphs and end - paragraphs[-1] <= MAX_QUESTION_CHARS:
        before = paragraphs[-2] if len(paragraphs) > 1 else window
        introduction = text[before : paragraphs[-1]].rstrip()
        if len(introduction) <= MAX_LEAD_CHARS and introduction.endswith((":", "?")):
            return before
        return paragraphs[-1]
    tail = max(0, end - MAX_QUESTION_CHARS)
    line = text.rfind("\n", tail and tail - 1, end) + 1
    if line and end - line <= MAX_QUESTION_CHARS:
        return line
    sentences = [m.end() for m in SENTENCE.finditer(text, tail, end)]
    return sentences[-1] if sentences else end


def _lead_stop(text: str) -> int:
    """End of an opening paragraph that asks or introduces; 0 when there is none."""
    first = PARAGRAPH.search(text, 0, MAX_LEAD_CHARS + 8)
    if first is None:
        return 0
    opening = text[: first.start()].rstrip()
    asks = len(opening) <= MAX_LEAD_CHARS and opening.endswith((":", "?"))
    return first.end() if asks else 0


def file_source(stored: StoredText) -> Source:
    return Source(kind=SourceKind.FILE, id=stored.file_id, name=stored.filename, text=stored.text)


def _document(document: InlineDocument) -> Source:
    return Source(kind=SourceKind.DOCUMENT, id=document.id, name=document.id, text=document.text)


def _inline(text: str, split: Split, name: str) -> Source:
    return Source(
        kind=SourceKind.PROMPT,
        id=name,
        name=name,
        text=text[split.start : split.stop],
        base=split.start,
    )
