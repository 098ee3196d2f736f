"""Attention tiles against float64, and how they add up."""

import pytest
import torch
from torch import Tensor

from engines.local.placement import Rule, Tile
from engines.local.tiles import Accumulator, attend_tile, merge_gathered, with_sink

SCALE = 0.25


def tile_of(rule: Rule, num_rows: int, num_keys: int, first_key: int = 0) -> Tile:
    return Tile(
        rule=rule,
        row=0,
        num_rows=num_rows,
        key=0,
        num_keys=num_keys,
        first_query=0,
        first_key=first_key,
    )


def inputs(num_rows: int, num_keys: int, size: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(num_rows * 1000 + num_keys)

    def random(heads: int, tokens: int) -> Tensor:
        return size * torch.randn(heads, tokens, 16, generator=generator)

    return random(6, num_rows), random(2, num_keys), random(2, num_keys)


def exact(q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None = None) -> tuple[Tensor, Tensor]:
    k, v = k.double().repeat_interleave(3, 0), v.double().repeat_interleave(3, 0)
    scores = SCALE * q.double() @ k.transpose(1, 2)
    if seen is not None:
        scores = scores.masked_fill(~seen, float("-inf"))
    return torch.nan_to_num(scores.softmax(-1)) @ v, scores.logsumexp(-1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("rule", "num_rows", "num_keys"),
    [(Rule.FULL, 1, 700), (Rule.FULL, 33, 65), (Rule.DIAGONAL, 40, 40), (Rule.MASKED, 40, 70)],
)
def test_a_tile_is_exact_and_its_lse_is_a_natural_logarithm(
    rule: Rule, num_rows: int, num_keys: int, dtype: torch.dtype
) -> None:
    q, k, v = (x.to(dtype) for x in inputs(num_rows, num_keys))
    window = 7
    positions = torch.arange(num_rows)[:, None], torch.arange(num_keys)[None]
    seen = None if rule is Rule.FULL else positions[1] <= positions[0]
    if rule is Rule.MASKED:
        assert seen is not None
        seen &= positions[1] > positions[0] - window
    out, lse = attend_tile(q, k, v, tile_of(rule, num_rows, num_keys), scale=SCALE, window=window)
    wanted_out, wanted_lse = exact(q, k, v, seen)
    limit = 1e-5 if dtype == torch.float32 else 2e-2
    assert out.dtype == lse.dtype == torch.float32
    assert float((out - wanted_out).abs().max()) < limit
    assert float((lse - wanted_lse).abs().max()) < 1e-4


def test_a_row_that_sees_no_key_has_lse_minus_infinity() -> None:
    q, k, v = inputs(10, 4)
    out, lse = attend_tile(q, k, v, tile_of(Rule.MASKED, 10, 4, 6), scale=SCALE, window=None)
    assert bool((lse[:, :6] == float("-inf")).all())
    assert bool(torch.isfinite(lse[:, 6:]).all())
    assert float(out[:, :6].abs().max()) == 0.0


def test_halves_add_up_to_the_whole_and_empty_rows_change_nothing() -> None:
    q, k, v = inputs(10, 40)
    total = Accumulator.like(q)
    for first in (0, 20):
        half = k[:, first : first + 20], v[:, first : first + 20]
        total.add(*attend_tile(q, *half, tile_of(Rule.FULL, 10, 20), scale=SCALE, window=None))
        total.add(torch.zeros_like(q), torch.full(q.shape[:2], float("-inf")))
    wanted_out, wanted_lse = exact(q, k, v)
    assert float((total.out_HTD - wanted_out).abs().max()) < 1e-5
    assert float((total.lse_HT - wanted_lse).abs().max()) < 1e-5


def test_rows_that_no_tile_has_reached_stay_empty_rather_than_nan() -> None:
    q, _, _ = inputs(3, 3)
    total = Accumulator.like(q)
    total.add(torch.zeros_like(q), torch.full(q.shape[:2], float("-inf")))
    assert float(total.out_HTD.abs().max()) == 0.0
    assert bool((total.lse_HT == float("-inf")).all())


@pytest.mark.parametrize("size", [1e4, -1e4])
def test_scores_of_ten_thousand_do_not_overflow(size: float) -> None:
    out = torch.stack([torch.ones(1, 1, 4), torch.full((1, 1, 4), 2.0)])
    lse = torch.tensor([size, size]).view(2, 1, 1)
    gathered = torch.cat([out.flatten(1), lse.flatten(1), torch.zeros(2, 1)], 1)
    merged, merged_lse, wants_stop = merge_gathered(gathered, (1, 1, 4))
    assert not wants_stop
    assert merged.flatten().tolist() == pytest.approx([1.5] * 4)
    total = Accumulator.like(torch.zeros(1, 1, 4))
    for i in range(2):
        total.add(out[i], lse[i])
    assert total.out_HTD.flatten().tolist() == pytest.approx([1.5] * 4)
    assert float(total.lse_HT) == pytest.approx(float(merged_lse))


def test_a_sink_takes_its_share_once() -> None:
    q, k, v = inputs(5, 9)
    out, lse = attend_tile(q, k, v, tile_of(Rule.FULL, 5, 9), scale=SCALE, window=None)
    sink = torch.linspace(-2, 2, 6)
    scores = SCALE * q @ k.repeat_interleave(3, 0).transpose(1, 2)
    with_extra = torch.cat([scores, sink.view(6, 1, 1).expand(6, 5, 1)], -1).softmax(-1)
    wanted = with_extra[..., :-1] @ v.repeat_interleave(3, 0)
    assert float((with_sink(out, lse, sink) - wanted).abs().max()) < 1e-5
