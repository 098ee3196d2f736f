"""What a rank keeps of a prompt between its first chunk and its question's answer.

Positions. Chunks share one place, whatever their length and their number, so that no prompt
leaves the model's window, no chunk wins by being near, and a chunk's keys are the same in every
prompt that has it behind the same anchor:

    | anchor |  (gap before a short chunk)  overlap, chunk | question |
    0        a                                             a + longest

Shapes: L voting layers, H query heads, R voting rows, T tokens. Suffix order is dim order.
"""

import numpy as np
import torch
from torch import Tensor

from engines.chunks import ChunkPlan
from engines.config import HierarchicalConfig
from engines.local.hierarchical.passes import Anchor
from engines.local.hierarchical.votes import Question
from engines.local.placement import Run
from engines.local.segments.int8 import Int8Keys

VOTING_ROWS = 128
"""Rows of a question that vote. Of a longer one its last words, which ask, and its rarest."""


class Context:
    """Chunk j belongs to rank j mod N. Every rank reads anchor and question for itself.

    `lses` are of this rank's chunks, once they are weighed; `num_reused` counts their tokens that
    were not read for it.
    """

    def __init__(
        self, plan: ChunkPlan, sizes: HierarchicalConfig, *, rank: int, num_ranks: int
    ) -> None:
        self.plan = plan
        self.anchor = Anchor(plan.anchor_stop)
        self.own = range(rank, len(plan.chunks), num_ranks)
        self.asked_from = plan.anchor_stop + sizes.longest_read
        self.question: Question | None = None
        self.shelf: str | None = None
        self.lses: dict[int, Tensor] = {}
        self.num_reused = 0
        self.key_error = 0.0

    @property
    def is_complete(self) -> bool:
        return len(self.lses) == len(self.own)

    def place(self, chunk: int) -> Run:
        """The positions of what is read for a chunk: right before the question."""
        start, stop = self.plan.read(chunk)
        return Run(self.asked_from - (stop - start), stop - start)

    @property
    def question_place(self) -> Run:
        return Run(self.asked_from, self.plan.num_tokens - self.plan.question_start)

    def weigh(self, chunk: int, keys: Int8Keys) -> None:
        assert self.question is not None, "a chunk is weighed by the question"
        self.lses[chunk] = self.question.lse_over(keys)


def voting_rows(ids_T: Tensor, question_start: int) -> Tensor:
    """Rows of the question that vote, ascending; `ids_T` is the prompt."""
    question_T = ids_T[question_start:].numpy()
    num_rows = len(question_T)
    if num_rows <= VOTING_ROWS:
        return torch.arange(num_rows)
    num_last = VOTING_ROWS // 2
    counts = np.bincount(ids_T.numpy())
    earlier = np.argsort(counts[question_T[:-num_last]], kind="stable")[: VOTING_ROWS - num_last]
    last = np.arange(num_rows - num_last, num_rows)
    return torch.from_numpy(np.concatenate([np.sort(earlier), last]))
