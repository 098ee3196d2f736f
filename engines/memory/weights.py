"""Every weight of a model by name and size, and the bytes of all; knows no ranks and no devices."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from engines.memory.shape import ModelShape

DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True, slots=True)
class Weight:
    """`copies` matrices of [rows, columns], each with `bias` more elements.

    `is_linear`: quantisation may cover it. `is_split`: tensor-parallel ranks share it out, as
    transformers' tp_plan does; everything else lies on each of them.
    """

    name: str
    rows: int
    columns: int
    copies: int = 1
    bias: int = 0
    is_linear: bool = True
    is_split: bool = True

    @property
    def num_elements(self) -> int:
        return self.copies * (self.rows * self.columns + self.bias)


def weights_of(shape: ModelShape) -> Iterator[Weight]:
    """All parameters, under the names that transformers gives them (Phi-3's fused ones apart)."""
    hidden = shape.hidden_size
    yield Weight("model.embed_tokens", shape.vocab_size, hidden, is_linear=False, is_split=False)
    for layer in range(shape.num_layers):
        name = f"model.layers.{layer}."
        yield from _attention(shape, name)
        if shape.has_experts(layer):
            yield from _experts(shape, name)
        else:
            yield from _mlp(name + "mlp.", hidden, shape.intermediate_size, shape.has_mlp_bias)
        yield _vector(name + "norms", shape.family.norms * hidden)
    yield _vector("model.norm", hidden)
    if not shape.is_tied:
        yield Weight("lm_head", shape.vocab_size, hidden)


def _attention(shape: ModelShape, name: str) -> Iterator[Weight]:
    hidden, query, key = shape.hidden_size, shape.query_size, shape.key_size
    biased, family = shape.has_attention_bias, shape.family
    own = name + "self_attn."
    yield Weight(own + "q_proj", query, hidden, bias=query if biased else 0)
    yield Weight(own + "k_proj", key, hidden, bias=key if biased else 0)
    yield Weight(own + "v_proj", key, hidden, bias=key if biased else 0)
    out_bias = hidden if biased and family.has_output_bias else 0
    yield Weight(own + "o_proj", hidden, query, bias=out_bias)
    if family.qk_norm:
        is_wide = family.qk_norm == "width"
        yield _vector(own + "qk_norm", query + key if is_wide else 2 * shape.head_dim)
    if family.has_sinks:
        yield _vector(own + "sinks", shape.num_heads)


def _mlp(name: str, hidden: int, inner: int, biased: bool) -> Iterator[Weight]:
    yield Weight(name + "gate_proj", inner, hidden, bias=inner if biased else 0)
    yield Weight(name + "up_proj", inner, hidden, bias=inner if biased else 0)
    yield Weight(name + "down_proj", hidden, inner, bias=hidden if biased else 0)


def _experts(shape: ModelShape, name: str) -> Iterator[Weight]:
    """All of them: which ones a token needs is known only when it is there."""
    hidden, inner, count = shape.hidden_size, shape.expert_intermediate_size, shape.num_experts
    biased = shape.family.has_expert_bias
    yield Weight(
        name + shape.family.router,
        count,
        hidden,
        bias=count if biased else 0,
        is_linear=False,
        is_split=False,
    )
    own = name + "mlp.experts."
    yield Weight(own + "gate_up_proj", 2 * inner, hidden, count, 2 * inner if biased else 0)
    yield Weight(own + "down_proj", hidden, inner, count, hidden if biased else 0)
    if shape.shared_intermediate_size:
        shared = name + "mlp.shared_expert."
        yield from _mlp(shared, hidden, shape.shared_intermediate_size, biased=False)
        if shape.model_type == "qwen2_moe":
            yield _vector(name + "mlp.shared_expert_gate", hidden)


def _vector(name: str, length: int) -> Weight:
    return Weight(name, 1, length, is_linear=False, is_split=False)


def num_parameters(shape: ModelShape) -> int:
    """Embeddings included, tied ones once; exact for every family in `families`."""
    return sum(weight.num_elements for weight in weights_of(shape))


@cache
def model_bytes(shape: ModelShape, dtype: str, tp: int = 1) -> int:
    """One rank's weights when `tp` ranks share the model out.

    `dtype` is that of everything which the file does not quantise.
    """
    return sum(
        -(-_stored(weight, shape, dtype) // (tp if weight.is_split else 1))
        for weight in weights_of(shape)
    )


def _stored(weight: Weight, shape: ModelShape, dtype: str) -> int:
    size, quantization = DTYPE_BYTES[dtype], shape.quantization
    if quantization is None or not weight.is_linear or not quantization.covers(weight.name):
        return weight.num_elements * size
    matrix = quantization.matrix_bytes(weight.rows, weight.columns)
    return weight.copies * (matrix + weight.bias * size)
