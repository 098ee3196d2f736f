"""What travels round the ring in one layer of one step: keys and values, or queries.

Pure arithmetic on counts, so that every rank decides alike; knows no tensors.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TravelRule:
    """Keys and values travel where the new tokens are at least `keys_from` x 2G/H of all.

    With T new tokens after P old ones, H query and G key heads, a rank passes on
    2G(T + P)/N vectors of keys and values, or HT/N of queries: equal at T/(T + P) = 2G/H
    (Meta, arXiv 2411.01783, section 3.4). The results of travelling queries go home as well, in
    float32, which moves the crossing of the bytes to a third of that for bfloat16 models; Meta
    measured it near 0.4 (5 % where 2G/H is 12.5 %).
    """

    keys_from: float = 1.0

    def keys_travel(
        self, *, num_new: int, num_seen: int, num_heads: int, num_key_heads: int
    ) -> bool:
        """`num_seen` counts the old and new tokens that some row of the step can see."""
        return num_new * num_heads >= self.keys_from * 2 * num_key_heads * num_seen
