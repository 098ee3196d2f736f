"""Turning queries: rotary angles per layer, and moving a query instead of the keys it looks at.

Knows how Hugging Face models keep their rotary frequencies; does not know chunks or ranks.

Rotations compose: a key stored for position l and wanted at l + d scores against a query at P as
the stored key scores against the query turned by -d. Turning T query rows is far cheaper than
turning every key of a chunk. Magnitude factors (YaRN) are untouched, they are in q and k already.

Shapes: H query heads, T rows, D head dim, F rotary frequencies (2F <= D).
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class Rotary:
    """Per layer its inverse frequencies [F] in float64, or None where a layer has no RoPE."""

    layers: tuple[Tensor | None, ...]

    @classmethod
    def of(cls, model: nn.Module) -> "Rotary":
        """Read the frequencies of a loaded decoder; all its attention layers must be found."""
        rotary = next(m for name, m in model.named_modules() if name.endswith("rotary_emb"))
        found = {
            module.layer_idx: _frequencies(rotary, module)
            for name, module in model.named_modules()
            if name.endswith("self_attn") and isinstance(module.layer_idx, int)
        }
        return cls(tuple(found[layer] for layer in range(len(found))))

    def turn(self, q_HTD: Tensor, layer: int, by: int) -> Tensor:
        """`q_HTD` as it would be `by` positions later (earlier if negative)."""
        inv_freq_F = self.layers[layer]
        if by == 0 or inv_freq_F is None:
            return q_HTD
        angle_F = inv_freq_F * by
        cos_F, sin_F = angle_F.cos().to(q_HTD.dtype), angle_F.sin().to(q_HTD.dtype)
        half = inv_freq_F.shape[0]
        first, second = q_HTD[..., :half], q_HTD[..., half : 2 * half]
        return torch.cat(
            [
                first * cos_F - second * sin_F,
                second * cos_F + first * sin_F,
                q_HTD[..., 2 * half :],
            ],
            dim=-1,
        )


def _frequencies(rotary: nn.Module, attention: nn.Module) -> Tensor | None:
    if not getattr(attention, "use_rope", True):
        return None
    layer_type = getattr(attention, "layer_type", None)
    buffer = getattr(rotary, f"{layer_type}_inv_freq", None)
    if buffer is None:
        buffer = rotary.inv_freq
    assert isinstance(buffer, Tensor)
    return buffer.double()
