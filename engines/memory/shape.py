"""The sizes in a model's config.json that memory depends on; counts no bytes."""

from collections.abc import Mapping
from dataclasses import dataclass

from engines.memory.families import FAMILIES, Family, family_of
from engines.memory.quantization import Quantization, quantization_of

EXPERT_NAMES = ("num_local_experts", "num_experts", "n_routed_experts")
DTYPE_NAMES = ("dtype", "torch_dtype")
UNCOUNTED_LAYERS = ("linear_attention", "mamba", "conv", "recurrent")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """A decoder of `num_layers` equal layers, but for those without experts in `dense_layers`.

    `intermediate_size` is that of a dense MLP. `window_tokens` is the length that the model was
    trained for; `sliding_window` what the `num_sliding_layers` look back at.
    """

    model_type: str
    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    window_tokens: int
    is_tied: bool
    file_dtype: str
    has_attention_bias: bool = False
    has_mlp_bias: bool = False
    num_experts: int = 0
    experts_per_token: int = 0
    expert_intermediate_size: int = 0
    shared_intermediate_size: int = 0
    dense_layers: frozenset[int] = frozenset()
    num_sliding_layers: int = 0
    sliding_window: int = 0
    quantization: Quantization | None = None

    @property
    def family(self) -> Family:
        return family_of(self.model_type)

    @property
    def is_known(self) -> bool:
        return self.model_type in FAMILIES

    @property
    def query_size(self) -> int:
        """Not the hidden size: Qwen3, Gemma-3 and Mistral-Nemo have a head size of their own."""
        return self.num_heads * self.head_dim

    @property
    def key_size(self) -> int:
        return self.num_kv_heads * self.head_dim

    def has_experts(self, layer: int) -> bool:
        return self.num_experts > 0 and layer not in self.dense_layers


def shape_of(config: Mapping[str, object]) -> ModelShape:
    """Read a config.json; a text model nested in a larger one counts alone.

    Raises ValueError when a size is missing or a layer is of a kind that is not counted.
    """
    read = _Reader.of(config)
    _refuse_uncounted(read)
    hidden, heads = read.number("hidden_size"), read.number("num_attention_heads")
    num_layers = read.number("num_hidden_layers")
    num_experts = next((n for name in EXPERT_NAMES if (n := read.number(name, 0))), 0)
    window = read.number("sliding_window", 0)
    dense = read.number("intermediate_size", read.number("moe_intermediate_size", 0))
    return ModelShape(
        model_type=read.model_type,
        num_layers=num_layers,
        hidden_size=hidden,
        intermediate_size=dense or read.number("intermediate_size"),
        num_heads=heads,
        num_kv_heads=read.number("num_key_value_heads", heads),
        head_dim=read.number("head_dim", hidden // heads),
        vocab_size=read.number("vocab_size"),
        window_tokens=read.number("max_position_embeddings"),
        is_tied=read.flag("tie_word_embeddings"),
        file_dtype=read.text(DTYPE_NAMES, "float32"),
        has_attention_bias=read.flag("attention_bias") or read.flag("qkv_bias"),
        has_mlp_bias=read.flag("mlp_bias"),
        num_experts=num_experts,
        experts_per_token=read.number("num_experts_per_tok", min(num_experts, 2)),
        expert_intermediate_size=read.number("moe_intermediate_size", dense),
        shared_intermediate_size=_shared_size(read),
        dense_layers=_dense_layers(read, num_layers),
        num_sliding_layers=_num_sliding(read, num_layers) if window else 0,
        sliding_window=window,
        quantization=quantization_of(read.table("quantization_config")),
    )


class _Reader:
    """Looks a name up in the text model, then in the larger model around it, then in the family."""

    def __init__(self, text: Mapping[str, object], around: Mapping[str, object]) -> None:
        own = text.get("model_type") or around.get("model_type") or ""
        self.model_type = str(own)
        self._places = (text, around, family_of(self.model_type).defaults)

    @classmethod
    def of(cls, config: Mapping[str, object]) -> "_Reader":
        nested = config.get("text_config")
        return cls(nested if isinstance(nested, dict) else config, config)

    def find(self, name: str) -> object:
        """A null that is written down counts: Mistral's later files mean it."""
        return next((place[name] for place in self._places if name in place), None)

    def number(self, name: str, default: int | None = None) -> int:
        value = self.find(name)
        if value is None:
            value = default
        least = 1 if default is None else 0
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ValueError(f"config.json has no usable {name}")
        return value

    def flag(self, name: str) -> bool:
        return bool(self.find(name))

    def text(self, names: tuple[str, ...], default: str) -> str:
        values = (place.get(name) for place in self._places for name in names)
        return next((str(value) for value in values if value is not None), default)

    def table(self, name: str) -> Mapping[str, object]:
        value = self.find(name)
        return value if isinstance(value, dict) else {}

    def listed(self, name: str) -> list[object]:
        value = self.find(name)
        return value if isinstance(value, list) else []


def _refuse_uncounted(read: _Reader) -> None:
    if read.find("kv_lora_rank") is not None:
        raise ValueError("config.json has multi-head latent attention, whose KV is not counted")
    for kind in read.listed("layer_types"):
        if str(kind).startswith(UNCOUNTED_LAYERS):
            raise ValueError(f"config.json has layers of type {kind}, whose state is not counted")


def _shared_size(read: _Reader) -> int:
    """The expert that every token passes (Qwen2-MoE names its size, DeepSeek-V1 a number)."""
    named = read.number("shared_expert_intermediate_size", 0)
    return named or read.number("n_shared_experts", 0) * read.number("moe_intermediate_size", 0)


def _dense_layers(read: _Reader, num_layers: int) -> frozenset[int]:
    listed = {layer for layer in read.listed("mlp_only_layers") if isinstance(layer, int)}
    first = range(read.number("first_k_dense_replace", 0))
    step = read.number("decoder_sparse_step", 1) or 1
    return frozenset((*listed, *first, *(i for i in range(num_layers) if (i + 1) % step)))


def _num_sliding(read: _Reader, num_layers: int) -> int:
    """Read from `layer_types`, or from how older files spell the same."""
    kinds = read.listed("layer_types")
    if kinds:
        return sum(kind == "sliding_attention" for kind in kinds)
    if read.model_type.startswith("qwen"):
        first = read.number("max_window_layers", num_layers)
        return max(0, num_layers - first) if read.flag("use_sliding_window") else 0
    if read.model_type.startswith("smollm3") and not read.flag("use_sliding_window"):
        return 0
    pattern = {"gemma3": 6, "gemma3_text": 6, "gemma2": 2, "gpt_oss": 2}.get(read.model_type, 0)
    pattern = read.number("sliding_window_pattern", pattern)
    return num_layers - num_layers // pattern if pattern else num_layers
