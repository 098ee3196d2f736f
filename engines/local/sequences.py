"""What a rank keeps of an open sequence, from Open to Close; does not know models or steps.

Shapes: T tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec
import torch
from torch import Tensor

from engines.api import Grammar
from engines.chunks import plan_chunks
from engines.config import EngineConfig, HierarchicalConfig
from engines.gang.messages import Open, SamplingSpec
from engines.grammar import Follower
from engines.local.hierarchical.context import Context
from engines.local.kv import ShardedKv, shard_capacity
from engines.local.placement import Shares
from engines.local.replicated import SequenceRows
from engines.local.ring import RingGroup


@dataclass(slots=True, kw_only=True)
class OpenSequence:
    """`text_T` are the prompt and the replayed tokens; `generated` the answer so far, replay
    included. Full attention reads `ids_T` into `kv`: the whole text, or of a hierarchical
    sequence, once it was asked, the shortlist. Its chunks are in `context`."""

    sequence_id: int
    text_T: Tensor
    ids_T: Tensor
    num_prompt: int
    max_new_tokens: int
    spec: SamplingSpec
    generated: list[int]
    kv: ShardedKv
    context: Context | None = None
    cache_key: str = ""
    grammar: Grammar | None = None
    follower: Follower | None = None
    """Rank 0, which samples: where in the grammar the answer is."""
    first_logits: Tensor | None = None
    """Rank 0, between the last Prefill and the first Decode: what a fork samples from."""

    def branch(self, sequence_id: int, seed: int) -> "OpenSequence":
        """The same text and KV, another answer."""
        return replace(
            self,
            sequence_id=sequence_id,
            spec=msgspec.structs.replace(self.spec, seed=seed),
            generated=[],
            follower=None,
            kv=self.kv.copy(),
        )

    @property
    def owner(self) -> str:
        """Whose chunks it may use and leave behind."""
        return f"key {self.cache_key}" if self.cache_key else f"sequence {self.sequence_id}"

    @property
    def next_position(self) -> int:
        """Where in the text the next sampled token stands."""
        return self.num_prompt + len(self.generated)

    @property
    def num_asked(self) -> int:
        """Tokens that full attention reads before the answer."""
        return len(self.ids_T) - (len(self.text_T) - self.num_prompt)

    def rows(self, new: Shares) -> SequenceRows:
        """The part of a replicated pass that puts `new` rows at the end of this sequence."""
        return SequenceRows(self.kv, new)


def open_sequence(message: Open, group: RingGroup, config: EngineConfig) -> OpenSequence:
    body = bytearray(message.prompt_ids + message.replay_ids)
    text_T = torch.frombuffer(body, dtype=torch.int32)
    num_prompt = len(message.prompt_ids) // 4
    sequence = OpenSequence(
        sequence_id=message.sequence_id,
        text_T=text_T,
        ids_T=text_T[:0],
        num_prompt=num_prompt,
        max_new_tokens=message.max_new_tokens,
        spec=message.sampling,
        generated=text_T[num_prompt:].tolist(),
        grammar=message.grammar,
        cache_key=message.cache_key,
        kv=_kv(group, 0, 1),
    )
    if message.hierarchical:
        sequence.context = _context(message, group, config.hierarchical)
    else:
        read_by_full_attention(sequence, [(0, num_prompt)], group, config.prefill_chunk_tokens)
    return sequence


def read_by_full_attention(
    sequence: OpenSequence,
    spans: Sequence[tuple[int, int]],
    group: RingGroup,
    prefill_chunk_tokens: int,
) -> None:
    """Let the sequence be of these spans of its prompt and the replayed tokens, and make room
    for them and the answer. Prefill then reads them at the positions 0, 1, 2, ..."""
    parts = [sequence.text_T[start:stop] for start, stop in spans]
    sequence.ids_T = torch.cat([*parts, sequence.text_T[sequence.num_prompt :]])
    num_read = len(sequence.ids_T)
    num_replayed = len(sequence.text_T) - sequence.num_prompt
    total = num_read + max(0, sequence.max_new_tokens - num_replayed)
    sequence.kv = _kv(group, total, num_read // prefill_chunk_tokens + 1)


def _kv(group: RingGroup, total: int, num_steps: int) -> ShardedKv:
    return ShardedKv(
        rank=group.rank,
        num_ranks=group.size,
        capacity=shard_capacity(total, group.size, num_steps),
    )


def _context(message: Open, group: RingGroup, config: HierarchicalConfig) -> Context:
    plan = plan_chunks(
        len(message.prompt_ids) // 4, message.question_start, message.document_starts, config
    )
    return Context(plan, config, rank=group.rank, num_ranks=group.size)
