"""Which tokens an answer may take, as a mask on its logits; knows no sequences and no JSON."""

from collections.abc import Sequence

import torch
from torch import Tensor

from engines.grammar import Follower


def allowed_V(follower: Follower, answer: Sequence[int], num_ids: int) -> Tensor | None:
    """True for ids that may follow `answer`; None when none may."""
    mask = follower.allowed(answer)
    if mask is None:
        return None
    bytes_B = torch.frombuffer(bytearray(mask), dtype=torch.uint8)
    bits_B8 = bytes_B[:, None] >> torch.arange(8, dtype=torch.uint8)
    return (bits_B8 & 1).flatten()[:num_ids].bool()
