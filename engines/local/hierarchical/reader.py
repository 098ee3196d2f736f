"""Hierarchical attention on one rank: reads chunks, lets the question weigh them, chooses.

Knows the model through its forward pass and the order of things; the answer is not its affair:
what it chose is read again, together, by full attention (see `executor`). On SmolLM2-135M the
right chunk is nearly always found, but an answer from chunks that never saw each other is wrong.
"""

import logging
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from engines.chunks import num_within
from engines.config import EngineConfig
from engines.gang.messages import Span
from engines.local.hierarchical.context import Context, voting_rows
from engines.local.hierarchical.lexical import Floats, Lexicon
from engines.local.hierarchical.passes import AnchorPass, BlockPass, LayersRead, QuestionPass
from engines.local.hierarchical.shortlist import Choice, choose, falling, interleaved
from engines.local.hierarchical.voters import voting_layers
from engines.local.hierarchical.votes import Question, Weights, weigh
from engines.local.hook import AttentionPass
from engines.local.loading import Decoder
from engines.local.passes import Stop
from engines.local.placement import Run
from engines.local.ring import RingGroup
from engines.local.segments.int8 import Int8Keys, relative_error, to_int8
from engines.local.segments.segment import SegmentName, digest_of, id_bytes
from engines.local.segments.store import SegmentStore

logger = logging.getLogger(__name__)

LEADERS = 2
"""Chunks of each order whose words are followed to other chunks."""


class HierarchicalReader:
    """Level 1 and 2 of one rank's prompts. Without a store chunks are weighed and forgotten."""

    def __init__(
        self,
        config: EngineConfig,
        decoder: Decoder,
        group: RingGroup,
        store: SegmentStore | None = None,
    ) -> None:
        self._sizes = config.hierarchical
        self._model = f"{config.model_dir} {config.dtype}"
        self._decoder = decoder
        self._group = group
        self._store = store
        self._voting = voting_layers(self._sizes.voting_layers, decoder.shape, decoder.wide_layers)

    # Level 1.

    def encode(self, context: Context, text_T: Tensor, owner: str, chunk: int, stop: Stop) -> None:
        """Weigh one of this rank's chunks by the question, from its stored keys if they are kept.

        Raises StepAborted; then the chunk has not been read.
        """
        if context.question is None:
            self._begin(context, text_T, owner, stop)
        start, end = context.plan.read(chunk)
        ids_T = text_T[start:end]
        name = self._name(context, ids_T)
        keys = self._kept(name, ids_T)
        if keys is None:
            keys = self._read(context, ids_T, chunk, stop)
            if name is not None and self._store is not None:
                self._store.put(name, ids_T, keys)
        else:
            own_start, own_stop = context.plan.chunks[chunk]
            context.num_reused += own_stop - own_start
        context.weigh(chunk, keys)

    def forget(self, context: Context) -> None:
        """Throw away what was stored of this prompt."""
        if self._store is not None and context.shelf is not None:
            self._store.drop(context.shelf)

    def _begin(self, context: Context, text_T: Tensor, owner: str, stop: Stop) -> None:
        anchor, plan = context.anchor, context.plan
        anchor_T = text_T[: plan.anchor_stop]
        if not anchor.is_read:
            self._forward(anchor_T, anchor.run, AnchorPass(anchor, self._voting, stop))
            anchor.is_read = True
        context.shelf = digest_of(
            [
                owner.encode(),
                self._model.encode(),
                repr((self._voting, context.asked_from)).encode(),
                id_bytes(anchor_T),
            ]
        )
        place = context.question_place
        prompt_T = text_T[: plan.num_tokens]
        rows_T = voting_rows(prompt_T, plan.question_start)
        asking = QuestionPass(anchor, place, rows_T, self._voting, stop)
        self._forward(prompt_T[plan.question_start :], place, asking)
        context.question = Question(torch.stack(asking.queries), torch.stack(asking.lses))

    def _read(self, context: Context, ids_T: Tensor, chunk: int, stop: Stop) -> Int8Keys:
        place = context.place(chunk)
        reading = BlockPass(context.anchor, place, self._voting, stop)
        self._forward(ids_T, place, reading)
        exact_LGSD = torch.stack(reading.keys)
        keys = to_int8(exact_LGSD)
        context.key_error = max(context.key_error, relative_error(exact_LGSD, keys))
        return keys

    def _forward(self, ids_T: Tensor, place: Run, attending: AttentionPass) -> None:
        positions_T = torch.arange(place.start, place.stop)
        try:
            self._decoder.forward(ids_T, positions_T, attending, [])
        except LayersRead:
            return
        raise AssertionError("the model ended before its voting layers")

    def _name(self, context: Context, ids_T: Tensor) -> SegmentName | None:
        if self._store is None or context.shelf is None:
            return None
        return SegmentName.of(context.shelf, ids_T)

    def _kept(self, name: SegmentName | None, ids_T: Tensor) -> Int8Keys | None:
        """Processes that share the heads of a layer read together, or none of them reads."""
        found = None
        if name is not None and self._store is not None:
            found = self._store.get(name, ids_T)
        if self._group.heads is not None:
            is_missing = torch.tensor([float(found is None)])
            if bool(self._group.heads.highest(is_missing)):
                return None
        return found

    # Level 2.

    def ask(self, context: Context, text_T: Tensor, room_tokens: int) -> tuple[list[Span], float]:
        """The chosen spans, heaviest first, and the recall; equal on all ranks.

        `room_tokens` are left in the window beside anchor, question and answer.
        """
        plan = context.plan
        if not plan.chunks:
            return [], 1.0
        weights = self.weigh(context, text_T)
        order = self._order(context, weights, text_T)
        choice = choose(weights, order, plan, self._sizes, room_tokens)
        logger.info(
            "asked",
            extra={
                "chunks": len(plan.chunks),
                "chosen": len(choice.chosen),
                "recall": round(choice.recall, 4),
                "key_error": round(context.key_error, 4),
                "reused_tokens": context.num_reused,
            },
        )
        return _spans(context, choice, weights), choice.recall

    def weigh(self, context: Context, text_T: Tensor) -> Weights:
        """Once every chunk was encoded; by attention alone."""
        if context.question is None:  # a rank without chunks, or without any that are new
            self._begin(context, text_T, "", lambda: False)
        assert context.question is not None
        return weigh(context.question, context.lses, len(context.plan.chunks), self._group)

    def _order(self, context: Context, weights: Weights, text_T: Tensor) -> list[int]:
        """By attention, by shared words, and by the words beside those that were found so."""
        plan = context.plan
        ids_N = text_T[: plan.num_tokens].numpy().astype(np.int64)
        lexicon = Lexicon(ids_N[: plan.question_start], plan.chunks)
        question = ids_N[plan.question_start :]
        by_attention = falling(weights.score)
        by_words = falling(self._told(lexicon.scores([question])))
        leaders = list(interleaved([by_words[:LEADERS], by_attention[:LEADERS]]))
        beside = [run for chunk in leaders for run in lexicon.near([question], chunk)]
        followed = self._told(lexicon.scores(beside))
        by_trail = [chunk for chunk in falling(followed) if chunk not in leaders]
        return list(interleaved([by_words, by_attention, by_trail]))

    def _told(self, scores_C: Floats) -> list[float]:
        """Rank 0's, so that no rounding of another machine chooses another chunk."""
        told: list[float] = self._group.tell_all(torch.from_numpy(scores_C)).tolist()
        return told


def _spans(context: Context, choice: Choice, weights: Weights) -> list[Span]:
    spans: Sequence[tuple[int, int]] = context.plan.spans(choice.chosen)
    by_mass = sorted(
        zip(spans, choice.chosen, strict=True), key=lambda pair: -weights.mass[pair[1]]
    )
    assert num_within(spans) > 0 or not spans
    return [Span(*span, weights.mass[chunk]) for span, chunk in by_mass]
