"""Sources into parts of a token budget: whole documents where they fit, else at paragraphs.

Pure but for the tokenizer; knows no route. Nothing is left out: the parts' characters are all of
the sources'.
"""

import re
from collections.abc import Iterator, Sequence

from gateway.prompt.render import Excerpt
from gateway.prompt.segment import Source
from gateway.prompt.tokens import TextEncoder

HEADING_TOKENS = 24
"""What a document's name and the blank lines around it take, at most about."""

LEAST_FILL = 0.7
"""A part that must end inside a document is at least this full."""

BORDERS = (
    re.compile(r"\n\s*\n"),
    re.compile(r"\n"),
    re.compile(r"(?<=[.!?])\s"),
    re.compile(r"\s"),
)

Part = tuple[Excerpt, ...]


def cut_sources(sources: Sequence[Source], budget_tokens: int, encoder: TextEncoder) -> list[Part]:
    parts: list[Part] = []
    current: list[Excerpt] = []
    room = budget_tokens
    for source in sources:
        for excerpt, num_tokens in _pieces(source, budget_tokens - HEADING_TOKENS, encoder):
            if current and num_tokens + HEADING_TOKENS > room:
                parts.append(tuple(current))
                current, room = [], budget_tokens
            current.append(excerpt)
            room -= num_tokens + HEADING_TOKENS
    if current:
        parts.append(tuple(current))
    return parts


def text_of(part: Part) -> str:
    return "\n\n".join(
        f"{one.source.name}\n\n{one.source.text[one.start : one.stop]}" for one in part
    )


def _pieces(source: Source, budget: int, encoder: TextEncoder) -> Iterator[tuple[Excerpt, int]]:
    """Runs of the source's characters, each with its tokens; one if it fits."""
    text = source.text
    encoded = encoder.encode(text)
    total = len(encoded.ids)
    start, start_token = 0, 0
    while total - start_token > budget:
        least = encoder.char_at(encoded, start_token + int(budget * LEAST_FILL))
        most = encoder.char_at(encoded, start_token + budget)
        stop = max(_border(text, least, most), start + 1)
        stop_token = encoder.token_at(encoded, stop)
        yield Excerpt(source, start, stop), stop_token - start_token
        start, start_token = stop, stop_token
    if start < len(text):
        yield Excerpt(source, start, len(text)), total - start_token


def _border(text: str, least: int, most: int) -> int:
    """The last good place in (least, most] to cut at; `most` where there is none."""
    for border in BORDERS:
        ends = [match.end() for match in border.finditer(text, least, most)]
        if ends:
            return ends[-1]
    return most
