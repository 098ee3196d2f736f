"""Published models: their parameters and the KV of a token, from their own config.json."""

from collections.abc import Mapping

import pytest

from engines.memory import kv_bytes_per_token, num_parameters, shape_of
from engines.memory.kv import windowed_kv_bytes
from tests.engines.memory.published import (
    GEMMA3_4B,
    GPT_OSS_20B,
    LLAMA_8B,
    LLAMA_70B,
    LLAMA_405B,
    MISTRAL_NEMO,
    MIXTRAL_8X22B,
    QWEN3_06B,
    QWEN25_7B,
    Config,
)


@pytest.mark.parametrize(
    ("config", "parameters", "kv_bytes"),
    [
        (LLAMA_8B, 8_030_261_248, 131_072),
        (LLAMA_70B, 70_553_706_496, 327_680),
        (LLAMA_405B, 405_853_388_800, 516_096),
        (QWEN25_7B, 7_615_616_512, 57_344),
        (MIXTRAL_8X22B, 140_630_071_296, 229_376),
        (QWEN3_06B, 596_049_920, 114_688),
        (MISTRAL_NEMO, 12_247_782_400, 163_840),
        (GEMMA3_4B, 3_880_263_168, 139_264),
    ],
)
def test_published_models_have_their_published_sizes(
    config: Config, parameters: int, kv_bytes: int
) -> None:
    shape = shape_of(config)
    assert num_parameters(shape) == parameters
    assert kv_bytes_per_token(shape, "bfloat16") == kv_bytes
    assert kv_bytes_per_token(shape, "float32") == 2 * kv_bytes
    assert kv_bytes_per_token(shape, "fp8") == kv_bytes // 2


@pytest.mark.parametrize(
    ("config", "copied_formula"),
    [(QWEN3_06B, 57_344), (MISTRAL_NEMO, 204_800), (GEMMA3_4B, 174_080), (LLAMA_8B, 131_072)],
)
def test_hidden_over_heads_is_wrong_where_heads_have_a_size_of_their_own(
    config: Config, copied_formula: int
) -> None:
    shape = shape_of(config)
    guessed = shape.hidden_size // shape.num_heads
    assert 2 * shape.num_layers * shape.num_kv_heads * guessed * 2 == copied_formula
    is_right = guessed == shape.head_dim
    assert (kv_bytes_per_token(shape, "bfloat16") == copied_formula) is is_right


def test_int8_kv_has_a_scale_per_key_channel_and_per_value_token() -> None:
    values = 32 * 8 * 2
    keys = 32 * 8 * 128 * 2 // 256
    assert kv_bytes_per_token(shape_of(LLAMA_8B), "int8") == 65_536 + values + keys


@pytest.mark.parametrize(
    ("config", "num_sliding", "window"),
    [
        (GEMMA3_4B, 29, 1024),
        (GPT_OSS_20B, 12, 128),
        (QWEN25_7B, 0, 131_072),
        (MISTRAL_NEMO, 0, 0),
        (MIXTRAL_8X22B, 0, 0),
        ({**LLAMA_8B, "model_type": "mistral"}, 32, 4096),
    ],
)
def test_sliding_layers_are_counted_but_their_kv_is_kept_whole(
    config: Config, num_sliding: int, window: int
) -> None:
    shape = shape_of(config)
    assert (shape.num_sliding_layers, shape.sliding_window) == (num_sliding, window)
    whole = 200_000 * kv_bytes_per_token(shape, "bfloat16")
    enough = windowed_kv_bytes(shape, "bfloat16", 200_000)
    assert (enough < whole) is (num_sliding > 0)


def test_a_text_model_inside_a_larger_one_counts_alone() -> None:
    inside = {"model_type": "any", "vision_config": {"hidden_size": 1}, "text_config": LLAMA_8B}
    assert shape_of(inside) == shape_of(LLAMA_8B)


@pytest.mark.parametrize("name", ["num_hidden_layers", "hidden_size", "vocab_size"])
@pytest.mark.parametrize("value", [None, 0, -1, "many", True, 1.5])
def test_a_size_that_is_missing_or_no_size_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=name):
        shape_of({**LLAMA_8B, name: value})


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"kv_lora_rank": 512}, "latent attention"),
        ({"layer_types": ["full_attention", "linear_attention"]}, "linear_attention"),
        ({"quantization_config": {"quant_method": "aqlm"}}, "quantised by aqlm"),
    ],
)
def test_what_is_not_counted_is_refused_with_its_reason(
    changes: Mapping[str, object], reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        shape_of({**LLAMA_8B, **changes})
