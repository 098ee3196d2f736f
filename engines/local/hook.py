"""The attention function that Hugging Face models call, and what it hands to a forward pass.

Knows the shapes of the `AttentionInterface`; does not know how a pass attends. The pass itself
travels as a keyword argument of the model's forward, so there is no state outside a call.

Shapes: B batch (always 1), H query heads, G key heads, T rows, D head dim.
"""

from dataclasses import dataclass, replace
from typing import Protocol

from torch import Tensor, nn
from transformers import AttentionInterface

from engines.local.tiles import with_sink

ATTENTION_NAME = "ringway"


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerCall:
    """What one attention layer asks: T rows of queries, keys and values, RoPE already applied.

    `window` is the layer's sliding window in tokens, the row itself included.
    """

    layer: int
    q_HTD: Tensor
    k_GTD: Tensor
    v_GTD: Tensor
    scale: float
    window: int | None

    def rows(self, start: int, stop: int) -> "LayerCall":
        return replace(
            self,
            q_HTD=self.q_HTD[:, start:stop],
            k_GTD=self.k_GTD[:, start:stop],
            v_GTD=self.v_GTD[:, start:stop],
        )


class AttentionPass(Protocol):
    """One forward pass: who attends to what, and where its KV goes."""

    def attend(self, call: LayerCall) -> tuple[Tensor, Tensor]:
        """(out_HTD, lse_HT), float32, for this rank's rows. Raises StepAborted."""
        ...


def ringway_attention(  # noqa: PLR0913 (the signature is transformers')
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float,
    attending: AttentionPass,
    sliding_window: int | None = None,
    s_aux: Tensor | None = None,
    softcap: float | None = None,
    **_: object,
) -> tuple[Tensor, None]:
    """The `AttentionInterface` function. What remains in `_` (dropout, position ids) is settled
    elsewhere; everything that would change the result is named or refused."""
    if attention_mask is not None or softcap is not None or query.shape[0] != 1:
        raise ValueError("the pass decides who sees what: no mask, no soft-cap, one batch row")
    layer = module.layer_idx
    assert isinstance(layer, int)
    out_HTD, lse_HT = attending.attend(
        LayerCall(
            layer=layer,
            q_HTD=query[0],
            k_GTD=key[0],
            v_GTD=value[0],
            scale=scaling,
            window=sliding_window,
        )
    )
    if s_aux is not None:
        out_HTD = with_sink(out_HTD, lse_HT, s_aux)
    return out_HTD.to(query.dtype).transpose(0, 1).contiguous()[None], None


def register() -> None:
    """Make the function known to transformers under ATTENTION_NAME; may be called again."""
    AttentionInterface.register(ATTENTION_NAME, ringway_attention)
