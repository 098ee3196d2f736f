"""Real ranks against the estimate: the kernel's own high-water mark of private memory."""

import pytest

from tests.engines.memory.measuring import measured_ranks

PROMPT_TOKENS = {"bfloat16": 2048, "float32": 1024}

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(240)]


@pytest.mark.parametrize("dtype", PROMPT_TOKENS)
def test_a_rank_takes_what_was_foretold_while_it_prefills(dtype: str) -> None:
    """bfloat16 is cast, so that weights are private; float32 stays mapped and is shared."""
    pytest.importorskip("torch")
    ranks = measured_ranks(PROMPT_TOKENS[dtype], dtype=dtype)
    assert len(ranks) == 2
    for rank in ranks:
        foretold = rank.need.private
        if dtype == "bfloat16":
            assert rank.private == pytest.approx(foretold, rel=0.1)
        else:  # little but KV and the process itself, of which 20 MiB may be off
            assert rank.private == pytest.approx(foretold, abs=20 << 20)
