"""What ranks take from their host, and the KV that admission grants."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.api import TooLittleMemory
from engines.config import EngineConfig
from engines.memory import (
    FORKER_BYTES,
    Layout,
    activation_bytes,
    fits,
    kv_budget_tokens,
    kv_bytes_per_token,
    memory_need,
    num_parameters,
    process_bytes,
    rank_need,
    ring_bytes,
    shape_of,
    weight_bytes,
)
from tests.engines.memory.published import GPT_OSS_20B, LLAMA_8B

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


def config(**changes: object) -> EngineConfig:
    values: dict[str, object] = {"model_dir": Path("model"), "model_name": "m", **changes}
    return EngineConfig(**values)  # type: ignore[arg-type]


def test_the_default_model_has_the_known_sizes() -> None:
    shape = shape_of(SMOLLM2)
    assert num_parameters(shape) == 134_515_008
    assert kv_bytes_per_token(shape, "float32") == 46_080
    assert kv_bytes_per_token(shape, "bfloat16") == 23_040


def test_ranks_share_mapped_weights_and_each_holds_cast_ones() -> None:
    shape = shape_of(SMOLLM2)
    mapped = weight_bytes(shape, config(ranks=3, dtype="float32"))
    cast = weight_bytes(shape, config(ranks=3, dtype="bfloat16"))
    assert (mapped, cast) == (4 * 134_515_008, 3 * 2 * 134_515_008)


def test_a_quantised_file_is_never_mapped() -> None:
    shape = shape_of(GPT_OSS_20B)
    one, two = config(ranks=1, dtype="bfloat16"), config(ranks=2, dtype="bfloat16")
    assert weight_bytes(shape, two) == 2 * weight_bytes(shape, one)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("ranks", "tensor_parallel"), [(1, 1), (2, 1), (4, 1), (6, 3)])
def test_all_ranks_together_need_what_the_host_needs(
    dtype: str, ranks: int, tensor_parallel: int
) -> None:
    shape = shape_of(SMOLLM2)
    wanted = config(dtype=dtype, ranks=ranks, tensor_parallel=tensor_parallel)
    one, host = rank_need(shape, wanted, 8192), memory_need(shape, wanted, 8192)
    assert one.shared + ranks * one.private == host.total


def test_tensor_parallel_ranks_each_hold_their_part_of_weights_and_kv() -> None:
    shape = shape_of(SMOLLM2)
    whole = rank_need(shape, config(ranks=2, dtype="bfloat16"), 8192)
    part = rank_need(shape, config(ranks=6, tensor_parallel=3, dtype="bfloat16"), 8192)
    embeddings = 2 * 49_152 * 576
    assert part.kv == whole.kv // 3
    assert part.weights == pytest.approx(embeddings + (whole.weights - embeddings) / 3, rel=0.01)
    assert part.ring == whole.ring // 3


def test_what_travels_depends_on_the_chunk_and_not_on_the_prompt() -> None:
    shape = shape_of(SMOLLM2)
    layouts = [Layout(ring=ring, dtype="bfloat16", rows=100) for ring in (1, 2, 3)]
    queries, results = 100 * 576 * 2, 100 * (576 + 9) * 4
    assert [ring_bytes(shape, layout) for layout in layouts] == [
        0,
        2 * queries + 2 * results,
        2 * queries + 4 * results,
    ]


def test_activations_follow_the_widest_moment_of_a_layer() -> None:
    dense = shape_of(LLAMA_8B)
    layout = Layout(ring=2, dtype="bfloat16", rows=1000, max_running=0)
    mlp_row = (2 * 4096 + 3 * 14_336) * 2
    assert activation_bytes(dense, layout) == 1000 * mlp_row
    assert activation_bytes(dense, replace(layout, tp=2)) < 1000 * mlp_row
    two_experts = replace(
        dense, num_experts=8, experts_per_token=2, expert_intermediate_size=14_336
    )
    assert activation_bytes(two_experts, layout) > 2 * 1000 * 3 * 14_336 * 2
    windowed = shape_of(GPT_OSS_20B)
    assert activation_bytes(replace(windowed, sliding_window=100_000), layout) > activation_bytes(
        windowed, layout
    )


def test_a_given_budget_is_kept_or_refused_with_both_numbers() -> None:
    shape = shape_of(SMOLLM2)
    asked = config(kv_budget_bytes=46_080 * 10_000)
    assert kv_budget_tokens(shape, asked, available_bytes=8 << 30) == 10_000
    with pytest.raises(TooLittleMemory) as refused:
        kv_budget_tokens(shape, asked, available_bytes=1 << 30)
    assert refused.value.available_bytes == 1 << 30
    assert refused.value.needed_bytes > 538_000_000 + FORKER_BYTES + 2 * process_bytes("bfloat16")
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
    assert (large.kv, large.ring) == (2 * small.kv, small.ring)
    # Wide enough that a chunk of hierarchical attention is not the larger share of a rank.
    wide = memory_need(shape, config(prefill_chunk_tokens=1024), 1000)
    wider = memory_need(shape, config(prefill_chunk_tokens=2048), 1000)
    assert wider.activations > wide.activations > small.activations
    assert wider.ring == 2 * wide.ring
    third = memory_need(shape, config(ranks=3, dtype="bfloat16"), 1000).processes
    second = memory_need(shape, config(dtype="bfloat16"), 1000).processes
    assert third == second + process_bytes("bfloat16")
    assert second > small.processes
