"""Where hierarchical attention cuts a prompt; pure arithmetic, knows no tensors."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from engines.config import HierarchicalConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkPlan:
    """Anchor [0, anchor_stop), then chunks (start, stop) that tile [anchor_stop, question_start),
    then the question [question_start, num_tokens).

    `read_from` is per chunk where its reading begins: up to `overlap_tokens` before it, so that
    no short fact is torn at a border, but not in another document.

        anchor | chunk 0      | chunk 1      | question
                          [~~~~ read for 1   )
    """

    anchor_stop: int
    chunks: tuple[tuple[int, int], ...]
    read_from: tuple[int, ...]
    question_start: int
    num_tokens: int

    def read(self, chunk: int) -> tuple[int, int]:
        """The tokens that are encoded for a chunk, and read again if it is chosen."""
        return self.read_from[chunk], self.chunks[chunk][1]

    def spans(self, chosen: Iterable[int]) -> tuple[tuple[int, int], ...]:
        """What is read of the chosen chunks, in text order; neighbours do not overlap."""
        spans: list[tuple[int, int]] = []
        for chunk in sorted(chosen):
            start, stop = self.read(chunk)
            spans.append((max(start, spans[-1][1]) if spans else start, stop))
        return tuple(spans)

    def shortlist(self, chosen: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
        """What is read again for the answer: anchor, chosen spans in text order, question."""
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
    """Cut the context into chunks of `chunk_tokens`, counted from the start of each document.

    So a prompt that goes on where an earlier one ended is cut in the same places, and what was
    kept of those chunks can be used again. The last chunk of a document is what is left. A
    document of fewer than an eighth of `chunk_tokens` is cut together with the next.
    The supervisor and every rank call this with equal arguments and get equal plans.
    A question is never empty: without one, the prompt's last token asks.
    """
    question_start = min(question_start, num_tokens - 1)
    anchor_stop = min(config.anchor_tokens, question_start)
    inner = [s for s in document_starts if anchor_stop < s < question_start]
    borders = [*_far_enough(inner, anchor_stop, config.chunk_tokens // 8), question_start]
    chunks: list[tuple[int, int]] = []
    read_from: list[int] = []
    document = anchor_stop
    for border in borders:
        for start in range(document, border, config.chunk_tokens):
            chunks.append((start, min(start + config.chunk_tokens, border)))
            read_from.append(max(document, start - config.overlap_tokens))
        document = border
    return ChunkPlan(
        anchor_stop=anchor_stop,
        chunks=tuple(chunks),
        read_from=tuple(read_from),
        question_start=question_start,
        num_tokens=num_tokens,
    )


def choose_chunks(
    order: Iterable[int], plan: ChunkPlan, top_k: int, budget_tokens: int
) -> tuple[int, ...]:
    """The first `top_k` chunks of `order`, in text order, whose reading fits `budget_tokens`.

    A chunk that no longer fits is passed over for a smaller one.
    """
    chosen: list[int] = []
    for chunk in order:
        if len(chosen) == top_k:
            break
        start, stop = plan.read(chunk)
        if chunk not in chosen and stop - start <= budget_tokens:
            chosen.append(chunk)
            budget_tokens -= stop - start
    return tuple(sorted(chosen))


def _far_enough(borders: Sequence[int], start: int, least: int) -> Iterator[int]:
    for border in borders:
        if border - start >= least:
            yield border
            start = border
