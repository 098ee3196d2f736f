"""Passages into a token budget: which are read, how far, and how they look in the prompt.

Pure but for the tokenizer; knows no search.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.citations import Reading
from gateway.prompt.segment import Source
from gateway.prompt.tokens import TextEncoder

INSTRUCTION = (
    "Answer the question from the sources below and from nothing else. Name the source of each "
    "statement as [1], [2] and so on. If the sources do not hold the answer, say so."
)
LEAST_CUT_TOKENS = 48
"""A passage that would be cut shorter than this is left out."""


@dataclass(frozen=True, slots=True)
class Found:
    """A passage of a source, with its score."""

    source: Source
    start: int
    stop: int
    text: str
    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """`passage_tokens` counts the passages alone, without headings."""

    text: str
    readings: tuple[Reading, ...]
    passage_tokens: int


def pack(found: Sequence[Found], budget_tokens: int, encoder: TextEncoder) -> Packed:
    """The best passages that fit, best first; the last may be cut at a word, its span with it."""
    readings: list[Reading] = []
    blocks = [INSTRUCTION]
    num_tokens = 0
    for one in found:
        text = _fitting(one.text, budget_tokens - num_tokens, encoder)
        if not text:
            continue
        num_tokens += len(encoder.encode(text).ids)
        number = len(readings) + 1
        readings.append(
            Reading(
                source=one.source,
                start=one.start,
                stop=one.start + len(text),
                score=one.score,
                text=text,
                number=number,
            )
        )
        blocks.append(f"[{number}] {one.source.name}\n{text}")
    return Packed(text="\n\n".join(blocks), readings=tuple(readings), passage_tokens=num_tokens)


def _fitting(text: str, num_tokens: int, encoder: TextEncoder) -> str:
    encoded = encoder.encode(text)
    if len(encoded.ids) <= num_tokens:
        return text
    if num_tokens < LEAST_CUT_TOKENS:
        return ""
    head = text[: encoder.char_at(encoded, num_tokens)]
    words = head.rsplit(None, 1)[0]
    # Cutting earlier may split the last token in two, so that one more is needed.
    while len(encoder.encode(words).ids) > num_tokens:
        words = words.rsplit(None, 1)[0]
    return words
