"""How many bytes a model, its ranks and their KV need, from config.json alone; touches no tensor.

Measured with SmolLM2-135M on 2 ranks; see the constants.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from engines.api import TooLittleMemory
from engines.config import EngineConfig

DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
FLOAT32_BYTES = 4

FORKER_BYTES = 400 << 20
"""torch and transformers, imported once on the host and shared by its ranks."""

RANK_BYTES = 150 << 20
"""What one rank writes beyond the shared imports: allocator, gloo buffers, Python heap."""

KV_SHARE = 0.8
"""Share of the memory left over that KV may take when no budget is given."""

USEFUL_KV_TOKENS = 4096
"""An engine that cannot hold even this many tokens is refused at start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """The sizes in a model's config.json that memory depends on.

    `qkv_bias` counts the bias elements of one layer, `qk_norm` its query and key norm weights.
    """

    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    window_tokens: int
    is_tied: bool
    num_experts: int
    file_dtype: str
    qkv_bias: int
    qk_norm: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryNeed:
    """Bytes on one host that holds all ranks."""

    weights: int
    activations: int
    processes: int
    kv: int
    ring: int

    @property
    def total(self) -> int:
        return self.weights + self.activations + self.processes + self.kv + self.ring


def shape_of(config: Mapping[str, object]) -> ModelShape:
    """Read a config.json; a text model nested in a larger one counts alone.

    Raises ValueError when a size is missing: such a model is no decoder that we know.
    """
    nested = config.get("text_config")
    text: Mapping[str, object] = nested if isinstance(nested, dict) else config
    hidden, heads = _number(text, "hidden_size"), _number(text, "num_attention_heads")
    kv_heads = _number(text, "num_key_value_heads", heads)
    head_dim = _number(text, "head_dim", hidden // heads)
    model_type = str(text.get("model_type", ""))
    has_bias = bool(text.get("attention_bias", model_type == "qwen2"))
    has_qk_norm = model_type.startswith(("qwen3", "gemma3"))
    inner = _number(text, "moe_intermediate_size", _number(text, "intermediate_size"))
    return ModelShape(
        num_layers=_number(text, "num_hidden_layers"),
        hidden_size=hidden,
        intermediate_size=inner,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        vocab_size=_number(text, "vocab_size"),
        window_tokens=_number(text, "max_position_embeddings"),
        is_tied=bool(text.get("tie_word_embeddings", model_type.startswith("gemma"))),
        num_experts=_number(text, "num_local_experts", _number(text, "num_experts", 1)),
        file_dtype=str(text.get("dtype", text.get("torch_dtype", "float32"))),
        qkv_bias=(heads + 2 * kv_heads) * head_dim if has_bias else 0,
        qk_norm=2 * head_dim if has_qk_norm else 0,
    )


def num_parameters(shape: ModelShape) -> int:
    """Exact for the Llama and Qwen families; gpt-oss's expert biases (< 1 %) are left out."""
    query, key = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
    attention = shape.hidden_size * (2 * query + 2 * key) + shape.qkv_bias + shape.qk_norm
    router = shape.hidden_size * shape.num_experts if shape.num_experts > 1 else 0
    mlp = 3 * shape.hidden_size * shape.intermediate_size * shape.num_experts + router
    layer = attention + mlp + 2 * shape.hidden_size
    embeddings = shape.vocab_size * shape.hidden_size * (1 if shape.is_tied else 2)
    return shape.num_layers * layer + embeddings + shape.hidden_size


def weight_bytes(shape: ModelShape, config: EngineConfig) -> int:
    """Weights on one host: one mapped copy in the file's own dtype, else a cast one per rank."""
    copies = 1 if shape.file_dtype == config.dtype else config.ranks
    return copies * num_parameters(shape) * DTYPE_BYTES[config.dtype]


def kv_bytes_per_token(shape: ModelShape, dtype: str) -> int:
    """Keys and values of one token in all layers, un-repeated heads."""
    return 2 * shape.num_layers * shape.num_kv_heads * shape.head_dim * DTYPE_BYTES[dtype]


def ring_bytes(shape: ModelShape, kv_bytes: int) -> int:
    """Two buffers per rank, each one layer's shard of the longest sequence: `kv_bytes` in all."""
    return 2 * kv_bytes // shape.num_layers


def activation_bytes(shape: ModelShape, config: EngineConfig) -> int:
    """Peak of one rank's forward pass over a whole chunk (the question is not cut over ranks)."""
    size = DTYPE_BYTES[config.dtype]
    query, key = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
    inner = 3 * shape.intermediate_size * min(shape.num_experts, 4)
    row = (4 * shape.hidden_size + 2 * query + 2 * key + inner) * size
    accumulator = 2 * shape.num_heads * (shape.head_dim + 1) * FLOAT32_BYTES
    logits = 2 * config.max_running * shape.vocab_size * FLOAT32_BYTES
    return config.prefill_chunk_tokens * (row + accumulator) + logits


def memory_need(shape: ModelShape, config: EngineConfig, kv_tokens: int) -> MemoryNeed:
    """All ranks on one host, with KV for `kv_tokens` over all of them."""
    kv = kv_tokens * kv_bytes_per_token(shape, config.dtype)
    return MemoryNeed(
        weights=weight_bytes(shape, config),
        activations=config.ranks * activation_bytes(shape, config),
        processes=FORKER_BYTES + config.ranks * RANK_BYTES,
        kv=kv,
        ring=ring_bytes(shape, kv),
    )


def fits(shape: ModelShape, config: EngineConfig, *, kv_tokens: int, available_bytes: int) -> bool:
    return memory_need(shape, config, kv_tokens).total <= available_bytes


def kv_budget_tokens(shape: ModelShape, config: EngineConfig, available_bytes: int) -> int:
    """Tokens of KV, over all ranks, that the engine may hold.

    Raises TooLittleMemory when the configured budget, or else a useful minimum, does not fit.
    """
    per_token = kv_bytes_per_token(shape, config.dtype)
    if config.kv_budget_bytes is not None:
        wanted = config.kv_budget_bytes // per_token
    else:
        spare = available_bytes - memory_need(shape, config, 0).total
        per_held_token = per_token + ring_bytes(shape, per_token)
        wanted = int(spare * KV_SHARE) // per_held_token
    least = min(USEFUL_KV_TOKENS, shape.window_tokens)
    asked = wanted if config.kv_budget_bytes is not None else max(wanted, least)
    need = memory_need(shape, config, asked)
    if need.total > available_bytes:
        raise TooLittleMemory(
            model=config.model_name, needed_bytes=need.total, available_bytes=available_bytes
        )
    return asked


def _number(config: Mapping[str, object], name: str, default: int | None = None) -> int:
    value = config.get(name)
    if value is None:
        value = default
    if not isinstance(value, int):
        raise ValueError(f"config.json has no usable {name}")
    return value
