"""What a family's config.json may leave unsaid: defaults and layer parts; knows no sizes of models.

Read off the configuration and model classes of transformers 5.24.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """How the layers of one model_type differ from Llama's.

    `norms` counts the norm vectors of a layer besides those of queries and keys. `qk_norm` is
    "head" for one vector per head size and "width" for one over all heads.
    """

    defaults: Mapping[str, object] = field(default_factory=dict)
    norms: int = 2
    qk_norm: str = ""
    has_output_bias: bool = True
    has_sinks: bool = False
    has_expert_bias: bool = False
    has_tp: bool = True
    router: str = "mlp.gate"


QWEN_HEAD_DIM = 128
GEMMA3 = Family(
    defaults={
        "head_dim": 256,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "vocab_size": 262_208,
        "max_position_embeddings": 131_072,
        "tie_word_embeddings": True,
    },
    norms=4,
    qk_norm="head",
)

FAMILIES: Mapping[str, Family] = {
    "llama": Family(),
    "smollm3": Family(defaults={"tie_word_embeddings": True, "num_key_value_heads": 4}),
    "mistral": Family(defaults={"num_key_value_heads": 8, "sliding_window": 4096}),
    "mixtral": Family(defaults={"num_key_value_heads": 8, "num_local_experts": 8}),
    "phi3": Family(),
    "qwen2": Family(defaults={"attention_bias": True}, has_output_bias=False),
    "qwen2_moe": Family(
        defaults={"attention_bias": True, "shared_expert_intermediate_size": 5632},
        has_output_bias=False,
    ),
    "qwen3": Family(defaults={"head_dim": QWEN_HEAD_DIM}, qk_norm="head"),
    "qwen3_moe": Family(qk_norm="head"),
    "olmo2": Family(qk_norm="width"),
    "gemma2": Family(defaults=GEMMA3.defaults, norms=4),
    "gemma3": GEMMA3,
    "gemma3_text": GEMMA3,
    "gpt_oss": Family(
        defaults={"head_dim": 64, "num_key_value_heads": 8, "attention_bias": True},
        has_sinks=True,
        has_expert_bias=True,
        has_tp=False,
        router="mlp.router",
    ),
}


def family_of(model_type: str) -> Family:
    """An unknown family is counted like Llama; `ModelShape.is_known` says so."""
    return FAMILIES.get(model_type, FAMILIES["llama"])
