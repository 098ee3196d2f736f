"""How many GPUs a prompt takes, and what would fit instead."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.memory import shape_of
from engines.memory.devices import GIB, GPUS, gpu_named, larger_than, this_host
from engines.memory.planning import (
    Wish,
    alternatives,
    check,
    does_fit,
    largest_context,
    need_of,
    smallest_ring,
)
from tests.engines.memory.published import (
    GPT_OSS_20B,
    LLAMA_8B,
    LLAMA_70B,
    LLAMA_405B,
    QWEN25_7B,
    Config,
)

MILLION = 1 << 20


def wish(config: Config, gpu: str, context: int = MILLION, tp: int = 1) -> Wish:
    return Wish(
        shape=shape_of(config),
        device=gpu_named(gpu),
        context_tokens=context,
        dtype="bfloat16",
        kv_dtype="bfloat16",
        tp=tp,
    )


@pytest.mark.parametrize(
    ("config", "gpu", "ring"),
    [
        (LLAMA_8B, "h100", 3),
        (LLAMA_8B, "a100-40", 7),
        (LLAMA_8B, "h200", 2),
        (LLAMA_8B, "b200", 1),
        (QWEN25_7B, "h100", 1),
        (LLAMA_70B, "h100", None),
    ],
)
def test_the_fewest_gpus_for_a_million_tokens(config: Config, gpu: str, ring: int | None) -> None:
    assert smallest_ring(wish(config, gpu)) == ring


def test_the_ring_shares_kv_and_tensor_parallel_ranks_share_weights_and_heads() -> None:
    one = need_of(wish(LLAMA_70B, "h200"), 1)
    ringed = need_of(wish(LLAMA_70B, "h200"), 4)
    split = need_of(wish(LLAMA_70B, "h200", tp=8), 4)
    assert one.kv == 320 * GIB
    assert (ringed.weights, ringed.kv) == (one.weights, one.kv // 4)
    assert split.kv == one.kv // 32
    assert one.weights / 8 < split.weights < one.weights / 7
    assert split.ring == ringed.ring // 8
    assert split.activations < ringed.activations
    assert one.runtime < ringed.runtime < split.runtime


@settings(deadline=None)
@given(
    context=st.integers(1, 4 * MILLION), ring=st.integers(1, 9), gpu=st.sampled_from(sorted(GPUS))
)
def test_the_largest_context_fits_and_a_little_more_does_not(
    context: int, ring: int, gpu: str
) -> None:
    asked = wish(LLAMA_8B, gpu, context)
    found = largest_context(asked, ring)
    assert 0 <= found <= context
    if found:
        assert does_fit(replace(asked, context_tokens=found), ring)
    if found < context:
        assert not does_fit(replace(asked, context_tokens=min(context, found + 1024)), ring)


def test_what_would_fit_instead_is_named_with_its_numbers() -> None:
    found = alternatives(wish(LLAMA_8B, "h100"), 2)
    told = [(one.gpus, one.tp, one.device, one.kv_dtype, one.context_tokens) for one in found]
    shorter = found[0].context_tokens
    assert 900_000 < shorter < MILLION
    assert told == [
        (2, 1, "h100", "bfloat16", shorter),
        (2, 1, "h100", "int8", MILLION),
        (2, 2, "h100", "bfloat16", MILLION),
        (1, 1, "b200", "bfloat16", MILLION),
    ]


def test_weights_too_large_for_one_gpu_are_shared_out_or_sent_to_a_larger_one() -> None:
    seventy = alternatives(wish(LLAMA_70B, "h100", 128 << 10), 1)
    assert [(one.gpus, one.tp, one.device) for one in seventy] == [
        (4, 4, "h100"),
        (2, 2, "h200"),
    ]
    huge = alternatives(wish(LLAMA_405B, "h100"), 1)
    assert [(one.gpus, one.tp, one.device) for one in huge] == [(16, 8, "h200")]


@settings(deadline=None, max_examples=30)
@given(ring=st.integers(1, 8), context=st.integers(1, 8 * MILLION))
def test_every_alternative_does_fit(ring: int, context: int) -> None:
    asked = wish(LLAMA_70B, "a100-40", context)
    for one in alternatives(asked, ring):
        there = replace(
            asked,
            device=gpu_named(one.device),
            tp=one.tp,
            kv_dtype=one.kv_dtype,
            context_tokens=one.context_tokens,
        )
        assert does_fit(there, one.gpus // one.tp)


def test_ranks_of_one_host_share_its_memory() -> None:
    asked = replace(wish(QWEN25_7B, "h100", 65_536), device=this_host(64 * GIB))
    one, four = need_of(asked, 1), need_of(asked, 4)
    assert one.kv == four.kv == 65_536 * 57_344
    assert one.weights == four.weights  # mapped once: the file is bfloat16 already
    assert need_of(replace(asked, dtype="float32"), 4).weights == 8 * one.weights
    assert does_fit(asked, 4)
    longer = replace(asked, context_tokens=MILLION)
    assert [(one.gpus, one.kv_dtype) for one in alternatives(longer, 2)] == [
        (2, "bfloat16"),
        (2, "int8"),
        (1, "bfloat16"),
    ]


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (wish(QWEN25_7B, "h100", tp=8), "28 heads and 4 KV heads"),
        (wish(LLAMA_8B, "h100", tp=3), "32 heads and 8 KV heads"),
        (wish(GPT_OSS_20B, "h100", tp=2), "no tensor-parallel plan for gpt_oss"),
        (replace(wish(LLAMA_8B, "h100", tp=2), device=this_host(GIB)), "one host"),
    ],
)
def test_a_split_that_cannot_be_is_refused_with_its_reason(asked: Wish, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        check(asked)


def test_gpus_are_found_by_either_name_and_ordered_by_memory() -> None:
    assert gpu_named("G6e") == gpu_named("l40s")
    assert [gpu.name for gpu in larger_than(gpu_named("a100-80"))] == ["h200", "b200"]
    with pytest.raises(ValueError, match="unknown GPU 'tpu'; known: a100-40"):
        gpu_named("tpu")
