"""A text to chunks with exact spans; pure. Knows paragraphs and sentences, no file format.

    text      [..................................................)
    parents   [................)[...............)[...............)   what a model reads
    chunks    [....)[....)[....)[......)[.......)[......)[......)    what is searched

Both rows cover the text in order, without gaps and without overlap.
"""

import hashlib
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ingest.parsing.parsed import Heading
from retrieval.api import LIBRARY, Attribute, Chunk

# Cut after the last match in reach; the earlier pattern is the better place.
BOUNDARIES = (
    re.compile(r"\n[ \t\r]*\n\s*"),
    re.compile(r"\n"),
    re.compile("[.!?\u2026][\"'\u201d\u2019)\\]]*\\s+|[\u3002\uff01\uff1f]"),
    re.compile(r"\s+"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkConfig:
    """Sizes in characters. A chunk is shorter than `min_chars` only if its parent is."""

    chunk_chars: int = 1_000
    parent_chars: int = 2_500
    min_share: float = 0.4
    """A cut is looked for in the last part of a run, from this share of its size on."""

    def __post_init__(self) -> None:
        if not 4 <= self.chunk_chars <= self.parent_chars:
            raise ValueError("sizes must satisfy 4 <= chunk_chars <= parent_chars")
        if not 0 < self.min_share <= 0.5:
            raise ValueError(f"min_share must be in (0, 0.5], not {self.min_share}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkSource:
    """The text to chunk, and what its chunks are filed under."""

    document_id: str
    generation: str
    text: str
    title: str = ""
    outline: Sequence[Heading] = ()
    collection: str = LIBRARY
    attributes: Mapping[str, Attribute] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Span:
    start: int
    stop: int


def chunk(source: ChunkSource, config: ChunkConfig) -> list[Chunk]:
    """The same source always gives the same chunks, ids included. Empty text gives none."""
    heading_starts = [heading.start for heading in source.outline]
    cutter = Cutter(source.text, heading_starts, config.min_share)
    places = (
        Place(span, parent)
        for parent in cutter.cut(Span(0, len(source.text)), config.parent_chars)
        for span in cutter.cut(parent, config.chunk_chars)
    )
    return list(chunks_at(places, source))


@dataclass(frozen=True, slots=True)
class Place:
    """What is searched, and the larger run that is read for it."""

    span: Span
    parent: Span


def chunks_at(places: Iterable[Place], source: ChunkSource) -> Iterator[Chunk]:
    paths = HeadingPaths(source.title, source.outline)
    for place in places:
        span, parent = place.span, place.parent
        yield Chunk(
            id=chunk_id(source, span),
            document_id=source.document_id,
            generation=source.generation,
            start=span.start,
            stop=span.stop,
            parent_start=parent.start,
            parent_stop=parent.stop,
            text=source.text[span.start : span.stop],
            heading=paths.at(span),
            collection=source.collection,
            attributes=source.attributes,
        )


def chunk_id(source: ChunkSource, span: Span) -> str:
    names = (source.collection, source.document_id, source.generation, span.start, span.stop)
    name = "\0".join(map(str, names))
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32]


class Cutter:
    """Cuts a run of text into shorter ones, at the best boundary in reach."""

    def __init__(self, text: str, heading_starts: Sequence[int], min_share: float) -> None:
        self._text = text
        self._heading_starts = sorted(heading_starts)
        self._min_share = min_share

    def cut(self, run: Span, max_chars: int) -> Iterator[Span]:
        """Spans of at most `max_chars`; none is short unless the run is."""
        min_chars = max(1, int(max_chars * self._min_share))
        start = run.start
        while run.stop - start > max_chars:
            latest = min(start + max_chars, run.stop - min_chars)
            stop = self.best(start + min_chars, latest)
            yield Span(start, stop)
            start = stop
        if start < run.stop:
            yield Span(start, run.stop)

    def best(self, earliest: int, latest: int) -> int:
        """The best place to cut in [earliest, latest]."""
        first = bisect_left(self._heading_starts, earliest)
        last = bisect_right(self._heading_starts, latest)
        if first < last:
            return self._heading_starts[last - 1]
        for boundary in BOUNDARIES:
            stop = None
            for match in boundary.finditer(self._text, earliest - 1, latest):
                stop = match.end()
            if stop is not None:
                return stop
        return latest


class HeadingPaths:
    """Which headings a span lies under."""

    def __init__(self, title: str, outline: Sequence[Heading]) -> None:
        self._title = title
        self._starts: list[int] = []
        self._paths: list[str] = []
        open_headings: list[Heading] = []
        for heading in sorted(outline, key=lambda heading: heading.start):
            open_headings = [h for h in open_headings if h.level < heading.level] + [heading]
            self._starts.append(heading.start)
            self._paths.append(self._joined(open_headings))

    def at(self, span: Span) -> str:
        """The path at the span's beginning, from the title down."""
        index = bisect_right(self._starts, span.start) - 1
        return self._paths[index] if index >= 0 else self._title

    def _joined(self, headings: Sequence[Heading]) -> str:
        titles = [self._title, *(heading.title for heading in headings)]
        return " > ".join(dict.fromkeys(title for title in titles if title))
