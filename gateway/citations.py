"""Which passages support an answer, as verified quotes; pure, knows no route and no wire format."""

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gateway.prompt.segment import Source

MAX_CITATIONS = 6
MAX_UNMARKED = 2
MAX_QUOTE_CHARS = 400
LEAST_SHARED = 1 / 4

WORD = re.compile(r"\w+")
MARKER = re.compile(r"\[(\d{1,3}(?:\s*,\s*\d{1,3})*)\]")
SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Characters [start, stop) of a source's text that the model read; `number` is its marker."""

    source: Source
    start: int
    stop: int
    score: float
    text: str
    number: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Citation:
    """`start` and `stop` are offsets into what the caller holds: the file's stored text, the
    document's text, or the message's text. `quote` is exactly those characters."""

    source: Source
    start: int
    stop: int
    quote: str
    score: float
    number: int | None = None
    """The marker of the passage it is from."""


@dataclass(frozen=True, slots=True)
class _Sentence:
    reading: Reading
    start: int
    stop: int
    words: frozenset[str]


def cite(answer: str, question: str, readings: Sequence[Reading]) -> tuple[Citation, ...]:
    """Quotes from the readings that the answer marks as [n]; without any that support it, from
    those whose sentences share most with the answer. Quotes that the stored text does not hold
    are dropped."""
    sentences = [one for reading in readings for one in _sentences(reading)]
    weigh = _Weights(sentences, answer, question)
    marked = {int(n) for group in MARKER.findall(answer) for n in group.split(",")}
    best = [
        found
        for reading in readings
        if reading.number in marked
        and (found := weigh.best([s for s in sentences if s.reading is reading])) is not None
    ]
    if not best:
        best = weigh.several(sentences, MAX_UNMARKED)
    cited = [_citation(sentence) for sentence in best[:MAX_CITATIONS]]
    return tuple(one for one in cited if one is not None)


def _citation(sentence: _Sentence) -> Citation | None:
    """None unless the source's text holds the quote at its place."""
    source = sentence.reading.source
    first = sentence.start - sentence.reading.start
    quote = sentence.reading.text[first : first + sentence.stop - sentence.start]
    if not quote or source.text[sentence.start : sentence.stop] != quote:
        return None
    return Citation(
        source=source,
        start=source.base + sentence.start,
        stop=source.base + sentence.stop,
        quote=quote,
        score=sentence.reading.score,
        number=sentence.reading.number,
    )


def said_at(answer: str, citation: Citation) -> int:
    """Where in the answer the citation belongs: behind its first marker, else at the end."""
    for marker in MARKER.finditer(answer):
        if citation.number in {int(number) for number in marker[1].split(",")}:
            return marker.end()
    return len(answer)


class _Weights:
    """How much a sentence supports the answer: shared words, rare ones counting more.

    Only one that holds LEAST_SHARED of what some sentence of the answer says supports it: two
    sentences always have small words in common.
    """

    def __init__(self, sentences: Sequence[_Sentence], answer: str, question: str) -> None:
        self._answer = _words(MARKER.sub(" ", answer))
        self._question = _words(question)
        self._num = max(1, len(sentences))
        self._holding = Counter(word for sentence in sentences for word in sentence.words)
        said = map(_words, SENTENCE_END.split(MARKER.sub(" ", answer)))
        self._said = [(words, self._mass(words)) for words in said if words]

    def best(self, sentences: Sequence[_Sentence]) -> _Sentence | None:
        return next(iter(self.several(sentences, 1)), None)

    def several(self, sentences: Sequence[_Sentence], num: int) -> list[_Sentence]:
        """Best first; only sentences that share a telling word with the answer."""
        scored = [(self._support(sentence), i) for i, sentence in enumerate(sentences)]
        ranked = sorted((-support, i) for support, i in scored if support > 0)
        if not ranked:
            return []
        least = ranked[0][0] * 0.6
        return [sentences[i] for support, i in ranked[:num] if support <= least]

    def _support(self, sentence: _Sentence) -> float:
        said = self._mass(sentence.words & self._answer)
        if said == 0 or not self._holds_one(sentence):
            return 0.0
        return said + 0.5 * self._mass(sentence.words & self._question)

    def _holds_one(self, sentence: _Sentence) -> bool:
        return any(
            self._mass(sentence.words & words) >= LEAST_SHARED * mass for words, mass in self._said
        )

    def _mass(self, words: frozenset[str]) -> float:
        """A word that half of the sentences hold tells nothing, unless there are very few; one
        that none holds tells most."""
        total = 0.0
        for word in words:
            share = max(1, self._holding[word]) / self._num
            if share < 0.5 or self._num < 4:
                total += math.log(1 + 1 / share)
        return total


def _words(text: str) -> frozenset[str]:
    return frozenset(word.lower() for word in WORD.findall(text))


def _sentences(reading: Reading) -> Iterator[_Sentence]:
    start = 0
    text = reading.text
    for end, following in _borders(text):
        for first in range(start, end, MAX_QUOTE_CHARS):
            yield _sentence(reading, first, min(end, first + MAX_QUOTE_CHARS))
        start = following


def _borders(text: str) -> Iterator[tuple[int, int]]:
    for match in SENTENCE_END.finditer(text):
        yield match.start(), match.end()
    yield len(text), len(text)


def _sentence(reading: Reading, first: int, stop: int) -> _Sentence:
    raw = reading.text[first:stop]
    first += len(raw) - len(raw.lstrip())
    stop = first + len(raw.strip())
    return _Sentence(
        reading, reading.start + first, reading.start + stop, _words(reading.text[first:stop])
    )
