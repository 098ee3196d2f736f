"""What a rank keeps of an open sequence, from Open to Close; does not know models or steps.

Shapes: T tokens.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from engines.chunks import plan_chunks
from engines.config import HierarchicalConfig
from engines.gang.messages import Open, SamplingSpec
from engines.local.hierarchical import AnswerRows, Context, Winner
from engines.local.kv import ShardedKv, shard_capacity
from engines.local.loading import Decoder
from engines.local.passes import RowsPart, SequenceRows
from engines.local.placement import Shares
from engines.local.ring import RingGroup


@dataclass(slots=True, kw_only=True)
class OpenSequence:
    """`ids_T` are the prompt and the replayed tokens; `generated` the answer so far, replay
    included. `tail` is the KV of all of a full sequence, or of a hierarchical one's question and
    answer; the rest of a hierarchical one is in `context`."""

    sequence_id: int
    ids_T: Tensor
    num_prompt: int
    max_new_tokens: int
    spec: SamplingSpec
    generated: list[int]
    tail: ShardedKv
    context: Context | None = None
    winners: tuple[Winner, ...] = ()

    @property
    def next_position(self) -> int:
        """Where in the text the next sampled token stands."""
        return self.num_prompt + len(self.generated)

    def rows(self, new: Shares) -> RowsPart:
        """The part of a replicated pass that puts `new` rows at the end of this sequence."""
        if self.context is None:
            return SequenceRows(self.tail, new)
        return AnswerRows(self.context, self.winners, self.tail, new)


def open_full(message: Open, group: RingGroup, prefill_chunk_tokens: int) -> OpenSequence:
    ids_T, num_prompt = _ids(message)
    num_steps = len(ids_T) // prefill_chunk_tokens + 1
    total = max(len(ids_T), num_prompt + message.max_new_tokens)
    return _sequence(
        message,
        tail=ShardedKv(
            rank=group.rank,
            num_ranks=group.size,
            start=0,
            capacity=shard_capacity(total, group.size, num_steps),
        ),
    )


def open_hierarchical(
    message: Open, group: RingGroup, config: HierarchicalConfig, decoder: Decoder
) -> OpenSequence:
    num_prompt = len(message.prompt_ids) // 4
    plan = plan_chunks(num_prompt, message.question_start, message.document_starts, config)
    sequence = _sequence(message, tail=empty_tail(group, 0, 0))
    sequence.context = Context(
        plan,
        decoder.rotary,
        rank=group.rank,
        num_ranks=group.size,
        true_positions=num_prompt + message.max_new_tokens <= decoder.window_tokens,
    )
    return sequence


def empty_tail(group: RingGroup, start: int, total: int) -> ShardedKv:
    return ShardedKv(
        rank=group.rank,
        num_ranks=group.size,
        start=start,
        capacity=shard_capacity(total, group.size, 1),
    )


def _sequence(message: Open, *, tail: ShardedKv) -> OpenSequence:
    ids_T, num_prompt = _ids(message)
    return OpenSequence(
        sequence_id=message.sequence_id,
        ids_T=ids_T,
        num_prompt=num_prompt,
        max_new_tokens=message.max_new_tokens,
        spec=message.sampling,
        generated=ids_T[num_prompt:].tolist(),
        tail=tail,
    )


def _ids(message: Open) -> tuple[Tensor, int]:
    body = bytearray(message.prompt_ids + message.replay_ids)
    return torch.frombuffer(body, dtype=torch.int32), len(message.prompt_ids) // 4
