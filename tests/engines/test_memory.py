from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.api import TooLittleMemory
from engines.config import EngineConfig
from engines.memory import (
    FORKER_BYTES,
    RANK_BYTES,
    fits,
    kv_budget_tokens,
    kv_bytes_per_token,
    memory_need,
    num_parameters,
    shape_of,
    weight_bytes,
)

SMOLLM2: Mapping[str, object] = {
    "model_type": "llama",
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "head_dim": 64,
    "vocab_size": 49152,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
    "dtype": "float32",
}

TINY: dict[str, object] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 64,
    "max_position_embeddings": 128,
    "tie_word_embeddings": False,
}


def config(**changes: object) -> EngineConfig:
    values: dict[str, object] = {"model_dir": Path("model"), "model_name": "m", **changes}
    return EngineConfig(**values)  # type: ignore[arg-type]


def test_the_default_model_has_the_known_sizes() -> None:
    shape = shape_of(SMOLLM2)
    assert num_parameters(shape) == 134_515_008
    assert kv_bytes_per_token(shape, "float32") == 46_080
    assert kv_bytes_per_token(shape, "bfloat16") == 23_040


@pytest.mark.parametrize(
    ("known", "sizes"),
    [
        (8_030_261_248, (32, 4096, 14336, 32, 8, 128, 128_256, False, "llama")),
        (7_615_616_512, (28, 3584, 18944, 28, 4, 128, 152_064, False, "qwen2")),
        (596_049_920, (28, 1024, 3072, 16, 8, 128, 151_936, True, "qwen3")),
    ],
)
def test_published_parameter_counts_are_met(
    known: int, sizes: tuple[int, int, int, int, int, int, int, bool, str]
) -> None:
    names = (
        "num_hidden_layers",
        "hidden_size",
        "intermediate_size",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "vocab_size",
        "tie_word_embeddings",
        "model_type",
    )
    values = dict(zip(names, sizes, strict=True))
    assert num_parameters(shape_of({**values, "max_position_embeddings": 1})) == known


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3"])
def test_parameters_equal_those_of_a_real_model(kind: str) -> None:
    transformers = pytest.importorskip("transformers")
    made = transformers.AutoConfig.for_model(kind, **TINY)
    model = transformers.AutoModelForCausalLM.from_config(made)
    shape = shape_of(made.to_dict())
    assert num_parameters(shape) == sum(p.numel() for p in model.parameters())


def test_a_text_model_inside_a_larger_one_counts_alone() -> None:
    assert shape_of({"model_type": "gemma3", "text_config": TINY}) == shape_of(TINY)


def test_a_config_without_sizes_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="num_hidden_layers"):
        shape_of({name: value for name, value in TINY.items() if name != "num_hidden_layers"})


def test_ranks_share_mapped_weights_and_each_holds_cast_ones() -> None:
    shape = shape_of(SMOLLM2)
    mapped = weight_bytes(shape, config(ranks=3, dtype="float32"))
    cast = weight_bytes(shape, config(ranks=3, dtype="bfloat16"))
    assert (mapped, cast) == (4 * 134_515_008, 3 * 2 * 134_515_008)


def test_a_given_budget_is_kept_or_refused_with_both_numbers() -> None:
    shape = shape_of(SMOLLM2)
    asked = config(kv_budget_bytes=46_080 * 10_000)
    assert kv_budget_tokens(shape, asked, available_bytes=8 << 30) == 10_000
    with pytest.raises(TooLittleMemory) as refused:
        kv_budget_tokens(shape, asked, available_bytes=1 << 30)
    assert refused.value.available_bytes == 1 << 30
    assert refused.value.needed_bytes > 538_000_000 + FORKER_BYTES + 2 * RANK_BYTES
    assert str(refused.value).startswith("m needs 1.")


def test_a_machine_too_small_for_a_useful_prompt_is_refused() -> None:
    with pytest.raises(TooLittleMemory):
        kv_budget_tokens(shape_of(SMOLLM2), config(), available_bytes=1 << 30)


@given(available=st.integers(2 << 30, 1 << 40), ranks=st.integers(1, 16))
def test_the_budget_found_always_fits_and_grows_with_memory(available: int, ranks: int) -> None:
    shape, wanted = shape_of(SMOLLM2), config(ranks=ranks)
    if not fits(shape, wanted, kv_tokens=4096, available_bytes=available):
        with pytest.raises(TooLittleMemory):
            kv_budget_tokens(shape, wanted, available)
        return
    budget = kv_budget_tokens(shape, wanted, available)
    assert budget >= 4096
    assert fits(shape, wanted, kv_tokens=budget, available_bytes=available)
    assert kv_budget_tokens(shape, wanted, 2 * available) >= budget


def test_every_part_of_the_need_grows_with_what_it_depends_on() -> None:
    shape = shape_of(SMOLLM2)
    small, large = memory_need(shape, config(), 1000), memory_need(shape, config(), 2000)
    assert (large.kv, large.ring) == (2 * small.kv, 2 * small.ring)
    wider = memory_need(shape, config(prefill_chunk_tokens=1024), 1000)
    assert wider.activations > small.activations
    assert memory_need(shape, config(ranks=3), 1000).processes == small.processes + RANK_BYTES
