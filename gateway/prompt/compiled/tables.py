"""A vocabulary and a splitting expression as what the kernel reads; imports numba.

Knows tokens' bytes and ids. Blocking, up to seconds where the kernel is not on disk yet.
"""

from array import array
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from gateway.prompt.compiled import kernel
from gateway.prompt.compiled.arrays import EMPTY, NONE, Memo, Vocabulary
from gateway.prompt.compiled.kernel import MAX_PIECE_BYTES, MAX_SPELLED_BYTES
from gateway.prompt.compiled.kinds import Kinds, kinds
from gateway.prompt.compiled.rules import Rules

SLOTS_PER_TOKEN = 2
MEMO_ROWS = 8192
"""Half a megabyte for each thread that encodes at the same time."""


@dataclass(frozen=True, slots=True)
class CompiledBpe:
    """For any number of threads: the vocabulary is only read, a memo belongs to one call."""

    rules: tuple[int, int, bool]
    vocabulary: Vocabulary
    memos: deque[Memo] = field(default_factory=deque)

    @classmethod
    def build(cls, rules: Rules, ranks: Mapping[bytes, int]) -> "CompiledBpe | None":
        """`ranks` are the tokens with their ids; the lower id is merged first. None for a
        vocabulary that is too large."""
        short = {token: rank for token, rank in ranks.items() if 0 < len(token) <= MAX_PIECE_BYTES}
        spelled = b"".join(short)
        if len(spelled) > MAX_SPELLED_BYTES or not short:
            return None
        num_slots = 1 << (SLOTS_PER_TOKEN * len(short) - 1).bit_length()
        slots = np.zeros((num_slots, 2), np.int64)
        slots[:, 1] = EMPTY
        vocabulary = Vocabulary(
            slots=slots,
            spelled=np.frombuffer(spelled, np.uint8),
            byte_ids=np.full(256, NONE, np.int32),
            pair_ids=np.full(65536, NONE, np.int32),
        )
        stops = np.cumsum(np.fromiter(map(len, short), np.int64, len(short)))
        kernel.fill(np.fromiter(short.values(), np.int32, len(short)), stops, vocabulary)
        return cls((int(rules.family), rules.max_digits, rules.numbers_first), vocabulary)

    def encode(self, raw: bytes) -> "array[int] | None":
        """`raw` is UTF-8. None for what only others split and merge. Lets the GIL go."""
        try:
            memo = self.memos.pop()
        except IndexError:
            memo = _memo()
        out = np.empty(len(raw), np.int32)
        text = np.frombuffer(raw, np.uint8)
        num_ids = kernel.encode(text, _kinds(), self.rules, self.vocabulary, memo, out)
        self.memos.append(memo)
        if num_ids < 0:
            return None
        ids = array("i")
        ids.frombytes(out[:num_ids].view(np.uint8).data)
        return ids


def _memo() -> Memo:
    return Memo(np.zeros((MEMO_ROWS, 32), np.uint8), np.zeros((MEMO_ROWS, 8), np.int32))


@cache
def _kinds() -> Kinds:
    return kinds()
