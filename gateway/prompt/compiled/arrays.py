"""What the kernel reads and writes, as flat arrays; knows nothing of how.

A vocabulary is an open-addressing table. `slots[s, 0]` has the bytes of a token of up to 8, or the
hash of a longer one, whose bytes are then compared in `spelled`; `slots[s, 1]` has, from the lowest
bit on, its id (31), where it begins in `spelled` (24) and its length (8), or is EMPTY.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Ids = NDArray[np.int32]
Words = NDArray[np.int64]

NONE = 2**31 - 1
"""No token's id."""

EMPTY = -1


class Vocabulary(NamedTuple):
    """[2^k, 2] slots, the tokens' bytes, and the id, or NONE, of each single byte and of each pair
    of bytes."""

    slots: Words
    spelled: Bytes
    byte_ids: Ids
    pair_ids: Ids


class Memo(NamedTuple):
    """What pieces of several tokens were merged to, for one call at a time: in row r the length of
    a piece and its bytes, the number of its tokens and their ids. [2^k, 32] and [2^k, 8]."""

    pieces: Bytes
    ids: Ids
