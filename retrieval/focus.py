"""Where in a passage the query's words stand closest together; pure."""

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from retrieval.analyzer import analyze
from retrieval.api import Passage

_BORDER = re.compile(r"(?<=[.!?])\s+|\n+")


def focused(passage: Passage, terms: Sequence[str]) -> Passage:
    """The passage with its focus on the sentence or line that shares most with the query.

    A word that many of the passage's sentences hold tells less. Without a shared word the focus
    stays on the chunk that was found: it was found by its meaning.
    """
    asked = frozenset(terms)
    spans = list(_sentences(passage.text))
    shared = [asked.intersection(analyze(passage.text[start:stop])) for start, stop in spans]
    holding = Counter(term for found in shared for term in found)
    weight = {term: math.log(1 + len(spans) / count) for term, count in holding.items()}
    totals = [sum(weight[term] for term in found) for found in shared]
    best = max(range(len(spans)), key=totals.__getitem__, default=None)
    if best is None or totals[best] == 0:
        return passage
    start, stop = spans[best]
    return replace(passage, focus_start=passage.start + start, focus_stop=passage.start + stop)


def _sentences(text: str) -> Iterator[tuple[int, int]]:
    start = 0
    for border in _BORDER.finditer(text):
        if border.start() > start:
            yield start, border.start()
        start = border.end()
    if start < len(text):
        yield start, len(text)
