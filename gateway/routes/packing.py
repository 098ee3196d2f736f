"""Passages into a token budget: which are read, how far, and how they look in the prompt.

Pure but for the tokenizer; knows no search.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.citations import Reading
from gateway.prompt.segment import Source
from gateway.prompt.tokens import TextEncoder

LEAST_CUT_TOKENS = 48
"""A passage that would be cut shorter than this is left out."""


@dataclass(frozen=True, slots=True)
class Found:
    """A passage of a source, with its score; characters [focus_start, focus_stop) of the source
    are what the search found in it."""

    source: Source
    start: int
    text: str
    score: float
    focus_start: int
    focus_stop: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """`passage_tokens` counts the passages alone, without headings."""

    text: str
    readings: tuple[Reading, ...]
    passage_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PackBudget:
    """Tokens of all passages together, and of any one of them."""

    total_tokens: int
    passage_tokens: int


def pack(
    found: Sequence[Found], budget: PackBudget, instruction: str, encoder: TextEncoder
) -> Packed:
    """The best passages that fit, best first; a longer one is read around what was found."""
    readings: list[Reading] = []
    blocks = [instruction] if instruction else []
    num_tokens = 0
    for one in found:
        room = min(budget.passage_tokens, budget.total_tokens - num_tokens)
        start, stop = _readable(one, room, encoder)
        text = one.text[start:stop]
        if not text:
            continue
        num_tokens += encoder.encode(text).num_tokens
        number = len(readings) + 1
        readings.append(
            Reading(
                source=one.source,
                start=one.start + start,
                stop=one.start + stop,
                score=one.score,
                text=text,
                number=number,
            )
        )
        blocks.append(f"[{number}] {one.source.name}\n{text}")
    return Packed(text="\n\n".join(blocks), readings=tuple(readings), passage_tokens=num_tokens)


def _readable(one: Found, num_tokens: int, encoder: TextEncoder) -> tuple[int, int]:
    """Characters of the passage to read: all, or whole words around its focus."""
    encoded = encoder.encode(one.text)
    total = encoded.num_tokens
    if total <= num_tokens:
        return 0, len(one.text)
    if num_tokens < LEAST_CUT_TOKENS:
        return 0, 0
    middle = (one.focus_start + one.focus_stop) // 2 - one.start
    first = encoder.token_at(encoded, middle) - num_tokens // 2
    first = max(0, min(first, total - num_tokens))
    start = encoder.char_at(encoded, first)
    stop = encoder.char_at(encoded, first + num_tokens)
    while True:
        start, stop = _whole_words(one.text, start, stop)
        # Cutting elsewhere may split a border token in two, so that one more is needed.
        if encoder.encode(one.text[start:stop]).num_tokens <= num_tokens:
            return start, stop
        stop -= 1


def _whole_words(text: str, start: int, stop: int) -> tuple[int, int]:
    """The longest run inside [start, stop) that begins and ends at a word's border."""
    while 0 < start < stop and not text[start - 1].isspace():
        start += 1
    while start < stop < len(text) and not text[stop].isspace():
        stop -= 1
    return start, stop
