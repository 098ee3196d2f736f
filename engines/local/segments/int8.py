"""Keys as int8 and back, with what that costs; knows no chunks and no files.

One scale per channel: a few channels of a key are many times larger than the rest, and rotary
embedding keeps them in place.

Shapes: L layers, G key heads, S keys, D head dim. Suffix order is dim order.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

STEPS = 127


@dataclass(frozen=True, slots=True)
class Int8Keys:
    """`key * scale` is what was stored. `scale_LGD` is float32; on the CPU."""

    key_LGSD: Tensor
    scale_LGD: Tensor

    @property
    def num_keys(self) -> int:
        return self.key_LGSD.shape[2]

    def restored(self) -> Tensor:
        """[L, G, S, D], float32."""
        return self.key_LGSD.float() * self.scale_LGD[:, :, None]


def to_int8(key_LGSD: Tensor) -> Int8Keys:
    """Of any floating dtype on any device; there must be at least one key."""
    exact_LGSD = key_LGSD.float().cpu()
    scale_LGD = exact_LGSD.abs().amax(2).clamp_min(torch.finfo(torch.float32).tiny) / STEPS
    steps_LGSD = (exact_LGSD / scale_LGD[:, :, None]).round_()
    return Int8Keys(steps_LGSD.to(torch.int8), scale_LGD)


def relative_error(key_LGSD: Tensor, kept: Int8Keys) -> float:
    """Root mean square of what int8 lost, relative to that of the keys."""
    exact_LGSD = key_LGSD.float().cpu()
    lost = (kept.restored() - exact_LGSD).square().mean()
    return float((lost / exact_LGSD.square().mean().clamp_min(1e-30)).sqrt())
