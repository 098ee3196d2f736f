"""Where hierarchical attention cuts a prompt; pure arithmetic, knows no tensors."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from engines.config import HierarchicalConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkPlan:
    """Anchor [0, anchor_stop), then chunks (start, stop) that tile [anchor_stop, question_start),
    then the question [question_start, num_tokens)."""

    anchor_stop: int
    chunks: tuple[tuple[int, int], ...]
    question_start: int
    num_tokens: int

    def shortlist(self, chosen: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
        """What is read again for the answer: anchor, chosen chunks in text order, question."""
        question = self.question_start, self.num_tokens
        return ((0, self.anchor_stop), *sorted(chosen), question)


def num_within(spans: Iterable[tuple[int, int]]) -> int:
    return sum(stop - start for start, stop in spans)


def plan_chunks(
    num_tokens: int,
    question_start: int,
    document_starts: Sequence[int],
    config: HierarchicalConfig,
) -> ChunkPlan:
    """Cut the context into chunks of at most `chunk_tokens`.

    A chunk ends early at a document's start, so that it never mixes two documents, unless it
    would be left with fewer than an eighth of `chunk_tokens`: a crumb joins its neighbour.
    The supervisor and every rank call this with equal arguments and get equal plans.
    A question is never empty: without one, the prompt's last token asks.
    """
    question_start = min(question_start, num_tokens - 1)
    anchor_stop = min(config.anchor_tokens, question_start)
    borders = [s for s in document_starts if anchor_stop < s < question_start]
    chunks: list[tuple[int, int]] = []
    start = anchor_stop
    for stop in [*_far_enough(borders, anchor_stop, config.chunk_tokens // 8), question_start]:
        chunks.extend(_even_cuts(start, stop, config.chunk_tokens))
        start = stop
    return ChunkPlan(
        anchor_stop=anchor_stop,
        chunks=tuple(chunks),
        question_start=question_start,
        num_tokens=num_tokens,
    )


def choose_chunks(
    scores: Sequence[float], plan: ChunkPlan, top_k: int, budget_tokens: int
) -> tuple[int, ...]:
    """At most `top_k` chunks by falling score, in text order, together within `budget_tokens`.

    A chunk that no longer fits is passed over for a smaller one; equal scores go to the earlier.
    """
    chosen: list[int] = []
    for chunk in sorted(range(len(plan.chunks)), key=lambda c: (-scores[c], c)):
        start, stop = plan.chunks[chunk]
        if len(chosen) < top_k and stop - start <= budget_tokens:
            chosen.append(chunk)
            budget_tokens -= stop - start
    return tuple(sorted(chosen))


def _far_enough(borders: Sequence[int], start: int, least: int) -> Iterator[int]:
    for border in borders:
        if border - start >= least:
            yield border
            start = border


def _even_cuts(start: int, stop: int, size: int) -> Iterator[tuple[int, int]]:
    """Near-equal pieces of at most `size`; equal pieces keep the ranks equally busy."""
    num_pieces = -(-(stop - start) // size)
    for i in range(num_pieces):
        yield (
            start + (stop - start) * i // num_pieces,
            start + (stop - start) * (i + 1) // num_pieces,
        )
