"""The sizes of well-known models as their config.json states them, and their published counts."""

from collections.abc import Mapping

Config = Mapping[str, object]


def llama31(layers: int, hidden: int, inner: int, heads: int) -> Config:
    """No head_dim is written down: it is hidden / heads."""
    return {
        "model_type": "llama",
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_attention_heads": heads,
        "num_key_value_heads": 8,
        "vocab_size": 128_256,
        "max_position_embeddings": 131_072,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
    }


LLAMA_8B = llama31(32, 4096, 14_336, 32)
LLAMA_70B = llama31(80, 8192, 28_672, 64)
LLAMA_405B = llama31(126, 16_384, 53_248, 128)

QWEN25_7B: Config = {
    "model_type": "qwen2",
    "num_hidden_layers": 28,
    "hidden_size": 3584,
    "intermediate_size": 18_944,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152_064,
    "max_position_embeddings": 32_768,
    "max_window_layers": 28,
    "sliding_window": 131_072,
    "use_sliding_window": False,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}

MIXTRAL_8X22B: Config = {
    "model_type": "mixtral",
    "num_hidden_layers": 56,
    "hidden_size": 6144,
    "intermediate_size": 16_384,
    "num_attention_heads": 48,
    "num_key_value_heads": 8,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "vocab_size": 32_768,
    "max_position_embeddings": 65_536,
    "sliding_window": None,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}

QWEN3_06B: Config = {
    "model_type": "qwen3",
    "num_hidden_layers": 28,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151_936,
    "max_position_embeddings": 40_960,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
}

MISTRAL_NEMO: Config = {
    "model_type": "mistral",
    "num_hidden_layers": 40,
    "hidden_size": 5120,
    "intermediate_size": 14_336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 131_072,
    "max_position_embeddings": 131_072,
    "sliding_window": None,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}

GEMMA3_4B: Config = {
    "model_type": "gemma3",
    "torch_dtype": "bfloat16",
    "text_config": {
        "model_type": "gemma3_text",
        "num_hidden_layers": 34,
        "hidden_size": 2560,
        "intermediate_size": 10_240,
        "sliding_window": 1024,
    },
}

GPT_OSS_20B: Config = {
    "model_type": "gpt_oss",
    "num_hidden_layers": 24,
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "num_local_experts": 32,
    "num_experts_per_tok": 4,
    "vocab_size": 201_088,
    "max_position_embeddings": 131_072,
    "sliding_window": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 12,
    "attention_bias": True,
    "tie_word_embeddings": False,
    "quantization_config": {
        "quant_method": "mxfp4",
        "modules_to_not_convert": [
            "model.layers.*.self_attn",
            "model.layers.*.mlp.router",
            "model.embed_tokens",
            "lm_head",
        ],
    },
}
