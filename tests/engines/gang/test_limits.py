from array import array
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.api import (
    EngineRefused,
    GenerateRequest,
    PromptTooLong,
    Sampling,
)
from tests.engines.gang.play import LIMITS, Play, ask


@pytest.mark.parametrize(
    "bad",
    [
        ask(0),
        ask(4, new=0),
        ask(4, tier="gold"),
        ask(4, question_start=4),
        replace(ask(4, question_start=2), document_starts=(3, 1)),
        replace(ask(4), prompt_ids=array("i", [1, 100])),
        replace(ask(4), prompt_ids=array("i", [-1])),
        replace(ask(4), sampling=Sampling(logit_bias={100: 1.0})),
        ask(205, question_start=5),
    ],
)
def test_a_request_that_would_kill_a_rank_is_refused(bad: GenerateRequest) -> None:
    with pytest.raises(EngineRefused):
        Play().submit(bad)


@given(num_prompt=st.integers(1, 200), new=st.integers(1, 100), question=st.integers(0, 199))
def test_what_is_admitted_fits_the_budget(num_prompt: int, new: int, question: int) -> None:
    start = question if question < num_prompt else None
    for request in (ask(num_prompt, new=new), ask(num_prompt, new=new, question_start=start)):
        try:
            LIMITS.check(request)
        except (PromptTooLong, EngineRefused):
            continue
        assert LIMITS.kv_tokens(request) <= LIMITS.kv_budget_tokens
