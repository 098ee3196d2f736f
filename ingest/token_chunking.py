"""A text to chunks whose size its owner set in tokens; pure, given where the tokens lie.

    tokens    ................................................
    parents   [...................)                              the owner's chunks: read whole
                         [...................)                   they overlap as he said
                                    [...................)
    chunks    [....)[....)[....)[...)[....)[....)[....)[....)    windows that the embedder reads

Chunks cover the text once, in order; each lies inside the parent that has it nearest its middle.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ingest.chunking import ChunkSource, Cutter, Place, Span, chunks_at
from ingest.stores_api import Chunking
from retrieval.api import Chunk

TokenSpans = Callable[[str], Sequence[tuple[int, int]]]
"""Start and stop of every token of a text, in order. May block for long texts."""

CUT_SHARE = 0.8
"""A parent ends at the best boundary in its last fifth; `max_tokens` is never exceeded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowConfig:
    """`max_tokens` of a searched window: the embedder's limit with room for a heading."""

    max_tokens: int = 220
    min_share: float = 0.4

    def __post_init__(self) -> None:
        if self.max_tokens < 4:
            raise ValueError(f"max_tokens must be at least 4, not {self.max_tokens}")


def chunk_by_tokens(
    source: ChunkSource, chunking: Chunking, spans: TokenSpans, config: WindowConfig
) -> list[Chunk]:
    """The same source always gives the same chunks. A text without tokens gives none."""
    starts = [start for start, _ in spans(source.text)]
    if not starts:
        return []
    headings = [heading.start for heading in source.outline]
    windows = Windows(starts, len(source.text), Cutter(source.text, headings, config.min_share))
    parents = list(windows.overlapping(chunking))
    places = (
        Place(span, nearest(parents, index, span))
        for index, run in enumerate(own_runs(parents))
        for span in windows.even(run, config.max_tokens)
    )
    return list(chunks_at(places, source))


class Windows:
    """Runs of tokens as runs of characters; a token owns the characters up to the next one."""

    def __init__(self, starts: Sequence[int], num_chars: int, cutter: Cutter) -> None:
        self._starts = [0, *starts[1:]]
        self._num_chars = num_chars
        self._cutter = cutter

    def overlapping(self, chunking: Chunking) -> Iterator[Span]:
        first, num_tokens = 0, len(self._starts)
        least = max(int(chunking.max_tokens * CUT_SHARE), chunking.overlap_tokens + 1)
        while num_tokens - first > chunking.max_tokens:
            stop = self._cut(first + least, first + chunking.max_tokens)
            yield Span(self._starts[first], self._starts[stop])
            first = stop - chunking.overlap_tokens
        yield Span(self._starts[first], self._num_chars)

    def even(self, run: Span, max_tokens: int) -> Iterator[Span]:
        """The fewest windows of at most `max_tokens`, all about as long."""
        first = bisect_left(self._starts, run.start)
        last = bisect_left(self._starts, run.stop)
        while (num_tokens := last - first) > max_tokens:
            num_windows = -(-num_tokens // max_tokens)
            share = -(-num_tokens // num_windows)
            stop = self._cut(first + max(1, share // 2), first + share)
            yield Span(self._starts[first], self._starts[stop])
            first = stop
        if first < last:
            yield Span(self._starts[first], run.stop)

    def _cut(self, earliest: int, latest: int) -> int:
        """The token before which to cut: the best boundary among those."""
        stop = self._cutter.best(self._starts[earliest], self._starts[latest])
        return max(earliest, bisect_left(self._starts, stop))


def own_runs(parents: Sequence[Span]) -> Iterator[Span]:
    """What of each parent lies before the next one: together, the text once."""
    for parent, following in pairwise(parents):
        yield Span(parent.start, following.start)
    yield parents[-1]


def nearest(parents: Sequence[Span], index: int, span: Span) -> Span:
    """Of the parents that hold the span, the one whose middle is nearest to the span's."""
    holding = [one for one in parents[max(0, index - 2) : index + 1] if span.stop <= one.stop]
    middle = span.start + span.stop
    return min(holding, key=lambda one: abs(one.start + one.stop - middle))
