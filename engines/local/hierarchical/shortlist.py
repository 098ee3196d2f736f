"""Which chunks are read again, and how much of the question's attention they cover; pure.

Knows scores, plans and budgets; does not know where scores come from.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from engines.chunks import ChunkPlan, choose_chunks
from engines.config import HierarchicalConfig
from engines.local.hierarchical.votes import Weights


@dataclass(frozen=True, slots=True)
class Choice:
    """`chosen` in text order; `recall` is what they, anchor and question cover."""

    chosen: tuple[int, ...]
    recall: float


def falling(scores: Sequence[float]) -> list[int]:
    """Chunks by falling score, without those that have none; equal ones by place in the text."""
    return sorted((c for c, score in enumerate(scores) if score > 0), key=lambda c: -scores[c])


def interleaved(orders: Iterable[Sequence[int]]) -> Iterator[int]:
    """The best of each, then the second of each, and so on; each chunk once."""
    seen: set[int] = set()
    for turn in zip_longest(*orders):
        for chunk in turn:
            if chunk is not None and chunk not in seen:
                seen.add(chunk)
                yield chunk


def choose(
    weights: Weights,
    order: Sequence[int],
    plan: ChunkPlan,
    sizes: HierarchicalConfig,
    room_tokens: int,
) -> Choice:
    """The first `top_k` of `order`; more where they cover too little of what was looked at, by
    falling score, until they cover `least_recall`, number `most_k` or fill the room."""
    chosen = choose_chunks(order, plan, sizes.top_k, room_tokens)
    recall = weights.recall(chosen)
    for k in range(sizes.top_k + 1, sizes.most_k + 1):
        if recall >= sizes.least_recall:
            break
        more = choose_chunks([*chosen, *falling(weights.score)], plan, k, room_tokens)
        if len(more) == len(chosen):
            break
        chosen, recall = more, weights.recall(more)
    return Choice(chosen, recall)
