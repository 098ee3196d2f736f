"""Fused chunks become passages to read; pure, given the documents' texts."""

from bisect import insort
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from retrieval.api import Chunk, Passage
from retrieval.config import PassageConfig
from retrieval.fusion import FusedHit


def build_passages(
    hits: Sequence[FusedHit], texts: Mapping[str, str], top_k: int, config: PassageConfig
) -> list[Passage]:
    """At most `top_k` passages, best first, none overlapping; a passage scores as its best chunk.

        chunks found      [..1..]      [2]        2 shares its parent with 1: nothing new
        parents      [.....1,2......)   [...3...)
        passages     [......................)     3 begins where 1 ends: joined

    A hit is left out when its document has no text here, or its chunk is not what the text says
    at its span (an older generation).
    """
    covered = {document_id: _Cover(config) for document_id in texts}
    for hit in hits:
        if sum(len(cover.spans) for cover in covered.values()) >= top_k:
            break
        chunk = hit.chunk
        text = texts.get(chunk.document_id)
        if text is None or text[chunk.start : chunk.stop] != chunk.text:
            continue
        cover = covered[chunk.document_id]
        if cover.share_of(chunk) <= config.max_overlap:
            start, stop = _parent(chunk, len(text))
            cover.add(start, stop, chunk, hit.score)
    passages = [
        Passage(
            document_id=document_id,
            start=span.start,
            stop=span.stop,
            text=texts[document_id][span.start : span.stop],
            score=span.score,
            focus_start=span.focus_start,
            focus_stop=span.focus_stop,
        )
        for document_id, cover in covered.items()
        for span in cover.spans
    ]
    passages.sort(key=lambda passage: (-passage.score, passage.document_id, passage.start))
    return passages[:top_k]


def shortlist(hits: Sequence[FusedHit], top_k: int) -> list[FusedHit]:
    """`hits` with each side's own best among the first `top_k`, the rest in their order.

    A sum of scores can bury a chunk that holds every word of the question but means little to
    the embedder (a row of a table, a line of an invoice), or the other way round.
    """
    by_lexical = max(hits, key=lambda hit: _or_least(hit.lexical), default=None)
    by_vector = max(hits, key=lambda hit: _or_least(hit.similarity), default=None)
    best = [hit for hit in hits if hit is by_lexical or hit is by_vector]
    room = max(0, top_k - len(best))
    first = [hit for hit in hits if hit not in best][:room]
    taken = {hit.chunk.id for hit in (*best, *first)}
    head = [hit for hit in hits if hit.chunk.id in taken]
    return [*head, *(hit for hit in hits if hit.chunk.id not in taken)]


def _or_least(score: float | None) -> float:
    return float("-inf") if score is None else score


def _parent(chunk: Chunk, num_chars: int) -> tuple[int, int]:
    return max(0, min(chunk.parent_start, chunk.start)), min(
        num_chars, max(chunk.parent_stop, chunk.stop)
    )


@dataclass(slots=True, order=True)
class _Span:
    start: int
    stop: int
    score: float
    focus_start: int
    focus_stop: int


@dataclass(slots=True)
class _Cover:
    """The disjoint spans taken from one document, in order of position."""

    config: PassageConfig
    spans: list[_Span] = field(default_factory=list)

    def share_of(self, chunk: Chunk) -> float:
        """Which part of the chunk is covered already; an empty chunk is."""
        num_chars = chunk.stop - chunk.start
        if num_chars <= 0:
            return 1.0
        shared = sum(
            max(0, min(span.stop, chunk.stop) - max(span.start, chunk.start)) for span in self.spans
        )
        return shared / num_chars

    def add(self, start: int, stop: int, found: Chunk, score: float) -> None:
        for piece_start, piece_stop in list(self._uncovered(start, stop)):
            focus_start = min(max(found.start, piece_start), piece_stop)
            focus_stop = max(min(found.stop, piece_stop), focus_start)
            self._join(_Span(piece_start, piece_stop, score, focus_start, focus_stop))

    def _uncovered(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        for span in self.spans:
            if span.stop <= start or span.start >= stop:
                continue
            if start < span.start:
                yield start, span.start
            start = span.stop
        if start < stop:
            yield start, stop

    def _join(self, new: _Span) -> None:
        for span in list(self.spans):
            gap = max(span.start - new.stop, new.start - span.stop)
            low, high = min(span.start, new.start), max(span.stop, new.stop)
            if gap <= self.config.join_gap_chars and high - low <= self.config.max_passage_chars:
                self.spans.remove(span)
                best = max(span, new, key=lambda one: one.score)
                new = replace(best, start=low, stop=high)
        insort(self.spans, new)
