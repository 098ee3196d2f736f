"""Beyond 15,000 tokens, where other engines have drifted apart with the number of ranks."""

from functools import cache
from pathlib import Path

import pytest

from tests.engines.local.exactness.matrix import (
    Combination,
    Trace,
    compared,
    plain_traces,
    ring_traces,
)
from tests.engines.local.families import save_family
from tests.engines.local.ranks import on_ranks

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(240)]

FAMILY, LENGTH, CHUNK = "qwen3", 15_001, 1024


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two layers of four heads: the length is what matters."""
    return save_family(
        FAMILY,
        tmp_path_factory.mktemp("long"),
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=2 * LENGTH,
    )


@cache
def wanted(folder: Path) -> Trace:
    return on_ranks(1, plain_traces, {FAMILY: folder}, [(FAMILY, LENGTH)])[0][FAMILY, LENGTH]


@pytest.mark.parametrize("num_ranks", [1, 2, 4])
def test_a_long_prompt_gives_the_same_logits_on_any_number_of_ranks(
    small: Path, num_ranks: int
) -> None:
    one = Combination(FAMILY, num_ranks, LENGTH, CHUNK)
    for traces in on_ranks(num_ranks, ring_traces, {FAMILY: small}, [one]):
        error, same_tokens = compared(traces[one], wanted(small))
        assert same_tokens
        assert error < 1e-5
