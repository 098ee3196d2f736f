"""Finds in a Hugging Face model what the kernels of `kernels.layer` need.

Knows how models of Llama's shape are put together; does not know whether they compute what the
kernels do (`compiled_proof` does), nor ranks or sequences.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor, nn

from engines.local.few_rows import GATED_MLP, bits, is_plain
from engines.local.kernels.attend import LANES
from engines.local.kernels.bf16 import Bits
from engines.local.kernels.layer import Projections, Rest

MODEL_PARTS = {"embed_tokens", "layers", "norm", "rotary_emb"}
LAYER_PARTS = {"input_layernorm", "self_attn", "post_attention_layernorm", "mlp"}
PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj")
HEAD_NORMS = ("q_norm", "k_norm")

NOTHING: Bits = np.empty(0, np.uint16)
"""Stands for a weight that is not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledLayer:
    """Weights as kernels see them; the memory is the modules' own."""

    projections: Projections
    rest: Rest
    scale: float
    window: int | None
    has_positions: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledLayers:
    """A whole model for few rows. `embed` and `turn` are the model's own modules."""

    embed: nn.Module
    turn: nn.Module
    layers: Sequence[CompiledLayer]
    norm_K: Bits
    epsilon: float
    output_VK: Bits
    num_heads: int
    num_key_heads: int
    head_dim: int


def layers_of(module: nn.Module) -> CompiledLayers | None:
    """None unless all parts of the model are known, with plain bfloat16 weights on the CPU."""
    model, output = getattr(module, "model", None), getattr(module, "lm_head", None)
    if not isinstance(model, nn.Module) or not is_plain(module) or _parts(model) != MODEL_PARTS:
        return None
    modules = list(_part(model, "layers").children())
    if not _are_linear([output]) or not all(map(_is_known, modules)):
        return None
    assert isinstance(output, nn.Linear)
    attention = _part(modules[0], "self_attn")
    head_dim = attention.head_dim
    assert isinstance(head_dim, int)
    if output.bias is not None or head_dim % LANES:
        return None
    return CompiledLayers(
        embed=_part(model, "embed_tokens"),
        turn=_part(model, "rotary_emb"),
        layers=[_layer_of(layer) for layer in modules],
        norm_K=_weight(model, "norm"),
        epsilon=_epsilon(_part(model, "norm")),
        output_VK=bits(output.weight),
        num_heads=len(_weight(attention, "q_proj")) // head_dim,
        num_key_heads=len(_weight(attention, "k_proj")) // head_dim,
        head_dim=head_dim,
    )


def _is_known(layer: nn.Module) -> bool:
    if _parts(layer) != LAYER_PARTS:
        return False
    attention, mlp = _part(layer, "self_attn"), _part(layer, "mlp")
    norms = _parts(attention) - set(PROJECTIONS)
    gated = [getattr(mlp, name, None) for name in GATED_MLP]
    return (
        norms in (set(), set(HEAD_NORMS))
        and _are_linear([getattr(attention, name, None) for name in PROJECTIONS])
        and _are_linear(gated)
        and all(getattr(part, "bias", None) is None for part in gated)
        and all(
            hasattr(_part(layer, name), "variance_epsilon")
            for name in ("input_layernorm", "post_attention_layernorm")
        )
    )


def _layer_of(layer: nn.Module) -> CompiledLayer:
    attention, mlp = _part(layer, "self_attn"), _part(layer, "mlp")
    scale = attention.scaling
    assert isinstance(scale, float)
    return CompiledLayer(
        projections=Projections(
            norm_K=_weight(layer, "input_layernorm"),
            q_NK=_weight(attention, "q_proj"),
            k_NK=_weight(attention, "k_proj"),
            v_NK=_weight(attention, "v_proj"),
            q_bias_N=_bias(attention, "q_proj"),
            k_bias_N=_bias(attention, "k_proj"),
            v_bias_N=_bias(attention, "v_proj"),
            q_norm_D=_weight(attention, "q_norm"),
            k_norm_D=_weight(attention, "k_norm"),
            epsilon=_epsilon(_part(layer, "input_layernorm")),
        ),
        rest=Rest(
            o_KN=_weight(attention, "o_proj"),
            o_bias_K=_bias(attention, "o_proj"),
            norm_K=_weight(layer, "post_attention_layernorm"),
            gate_MK=_weight(mlp, "gate_proj"),
            up_MK=_weight(mlp, "up_proj"),
            down_KM=_weight(mlp, "down_proj"),
            epsilon=_epsilon(_part(layer, "post_attention_layernorm")),
        ),
        scale=scale,
        window=_window(attention),
        has_positions=bool(getattr(attention, "use_rope", True)),
    )


def _window(attention: nn.Module) -> int | None:
    """Mistral's layers have it from their configuration, others' from themselves."""
    of_config: int | None = getattr(attention.config, "sliding_window", None)
    window: int | None = getattr(attention, "sliding_window", of_config)
    return window


def _parts(module: nn.Module) -> set[str]:
    return {name for name, _ in module.named_children()}


def _part(module: nn.Module, name: str) -> nn.Module:
    part = getattr(module, name)
    assert isinstance(part, nn.Module)
    return part


def _are_linear(parts: Sequence[object]) -> bool:
    return all(type(part) is nn.Linear for part in parts)


def _weight(module: nn.Module, name: str) -> Bits:
    return _bits(getattr(getattr(module, name, None), "weight", None))


def _bias(module: nn.Module, name: str) -> Bits:
    return _bits(getattr(getattr(module, name), "bias", None))


def _bits(tensor: Tensor | None) -> Bits:
    return NOTHING if tensor is None else bits(tensor)


def _epsilon(norm: nn.Module) -> float:
    epsilon = norm.variance_epsilon
    assert isinstance(epsilon, float)
    return epsilon
