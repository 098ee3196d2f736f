"""How fast a gang has been of late, and what that says about waiting; pure, no clock."""

from collections.abc import Iterable
from dataclasses import dataclass

from engines.gang.sequence import Sequence

KEEP = 0.8
"""Share of an old rate that survives one new measurement."""

LEAST_WAIT_S = 1.0


@dataclass(slots=True, kw_only=True)
class Pace:
    """The first values are guesses that the first steps correct."""

    read_tokens_per_s: float = 1000.0
    decode_step_s: float = 0.05

    def has_read(self, num_tokens: int, seconds: float) -> None:
        if num_tokens > 0 and seconds > 0:
            rate = num_tokens / seconds
            self.read_tokens_per_s = KEEP * self.read_tokens_per_s + (1 - KEEP) * rate

    def has_decoded(self, seconds: float) -> None:
        self.decode_step_s = KEEP * self.decode_step_s + (1 - KEEP) * seconds

    def read_s(self, num_tokens: int) -> float:
        return num_tokens / self.read_tokens_per_s

    def left_s(self, sequence: Sequence) -> float:
        """Until a running request ends, if it uses all its tokens and runs alone."""
        left_tokens = sequence.request.max_new_tokens - len(sequence.sent_ids)
        return self.read_s(sequence.unread_tokens) + left_tokens * self.decode_step_s

    def kv_free_s(self, lacking_tokens: int, running: Iterable[Sequence]) -> float:
        """Until requests that run now have ended that hold `lacking_tokens` of KV, or all have."""
        waited_s = 0.0
        for left_s, held in sorted((self.left_s(s), s.kv_tokens) for s in running):
            if lacking_tokens <= 0:
                break
            waited_s = left_s
            lacking_tokens -= held
        return waited_s
