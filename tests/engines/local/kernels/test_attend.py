"""The few-rows attention kernel against plain softmax in float64."""

import pytest
import torch

from engines.local.few_rows_attention import attend_few_rows, suits_few_rows


def plain(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    scores = scale * q.double() @ k.double().transpose(-1, -2)
    return scores.softmax(-1) @ v.double(), scores.logsumexp(-1)


def random(*shape: int, seed: int, size: float = 1.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (size * torch.randn(*shape, generator=generator)).bfloat16()


@pytest.mark.parametrize("num_keys", [1, 3, 63, 64, 65, 1000])
@pytest.mark.parametrize(("num_rows", "head_dim"), [(3, 64), (1, 80)])
def test_the_kernel_equals_softmax_over_any_number_of_keys(
    num_rows: int, head_dim: int, num_keys: int
) -> None:
    q = random(1, 3, num_rows, head_dim, seed=1)
    k, v = (random(1, 3, num_keys, head_dim, seed=s) for s in (2, 3))
    out, lse = attend_few_rows(q, k, v, 0.125)
    wanted, wanted_lse = plain(q, k, v, 0.125)
    assert float((out - wanted).abs().max()) < 2e-6
    assert float((lse - wanted_lse).abs().max()) < 4e-6


def test_a_slice_of_a_larger_buffer_is_read_where_it_lies() -> None:
    kv = random(2, 1, 2, 500, 64, seed=4)
    k, v = kv[0, :, :, 100:317], kv[1, :, :, 100:317]
    q = random(1, 2, 4, 64, seed=5)
    out, _ = attend_few_rows(q, k, v, 0.1)
    assert float((out - plain(q, k, v, 0.1)[0]).abs().max()) < 2e-6


def test_heads_in_parallel_give_the_same_numbers() -> None:
    q, k, v = (random(1, 5, n, 64, seed=n) for n in (3, 200, 201))
    v = v[:, :, :200].contiguous()
    before = torch.get_num_threads()
    results = []
    try:
        for num_threads in (1, 2):
            torch.set_num_threads(num_threads)
            results.append(attend_few_rows(q, k, v, 0.125))
    finally:
        torch.set_num_threads(before)
    assert float((results[0][0] - results[1][0]).abs().max()) < 1e-6
    assert float((results[0][1] - results[1][1]).abs().max()) < 1e-5


@pytest.mark.parametrize("growing", [True, False])
def test_scores_of_ten_thousand_in_any_order_do_not_overflow(growing: bool) -> None:
    k = random(1, 1, 300, 64, seed=6) * torch.linspace(1, 60, 300).view(1, 1, 300, 1).bfloat16()
    k = k if growing else k.flip(2).contiguous()
    q, v = random(1, 1, 2, 64, seed=7, size=30.0), random(1, 1, 300, 64, seed=8)
    out, lse = attend_few_rows(q, k, v, 1.0)
    wanted, wanted_lse = plain(q, k, v, 1.0)
    assert float((out - wanted).abs().max()) < 1e-2
    assert float((lse / wanted_lse - 1).abs().max()) < 1e-5


def test_float32_many_rows_and_scattered_keys_are_not_for_this_kernel() -> None:
    q, k = random(1, 2, 3, 64, seed=1), random(1, 2, 9, 64, seed=2)
    assert suits_few_rows(q, k, k)
    assert not suits_few_rows(q.float(), k.float(), k.float())
    assert not suits_few_rows(random(1, 2, 40, 64, seed=1), k, k)
    assert not suits_few_rows(q, k.transpose(2, 3).contiguous().transpose(2, 3), k)
