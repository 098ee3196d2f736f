"""One row of logits, one token."""

from collections import Counter

import pytest
import torch

from engines.gang.messages import NO_TOKEN
from engines.local.ring import RingGroup
from engines.local.sampling import agree, draw
from tests.engines.local.driving import spec_of

LOGITS = torch.tensor([2.0, 1.0, 0.5, 0.0, -1.0])


def drawn(num: int, **settings: float) -> Counter[int]:
    """Tokens at `num` positions with one seed."""
    spec = spec_of(**{"temperature": 1.0, **settings})  # type: ignore[arg-type]
    return Counter(draw(LOGITS, spec, [], position).token_id for position in range(num))


def test_temperature_zero_takes_the_likeliest() -> None:
    assert draw(LOGITS, spec_of(seed=7), [], 3).token_id == 0


def test_frequencies_follow_the_softmax() -> None:
    counts = drawn(4000)
    for token_id, probability in enumerate(LOGITS.softmax(-1).tolist()):
        assert counts[token_id] / 4000 == pytest.approx(probability, abs=0.03)


def test_a_low_temperature_sharpens() -> None:
    assert drawn(1000, temperature=0.2)[0] > 950


def test_top_k_keeps_k_tokens() -> None:
    assert set(drawn(500, top_k=2)) == {0, 1}


def test_top_p_keeps_the_smallest_set_that_reaches_it() -> None:
    # Probabilities are 0.56, 0.21, 0.13, 0.08, 0.03.
    assert set(drawn(500, top_p=0.7)) == {0, 1}
    assert set(drawn(500, top_p=0.01)) == {0}


def test_the_same_seed_and_position_give_the_same_token_and_others_do_not() -> None:
    spec, other = spec_of(temperature=1.0, seed=1), spec_of(temperature=1.0, seed=2)
    first = [draw(LOGITS, spec, [], position).token_id for position in range(50)]
    assert first == [draw(LOGITS, spec, [4], position).token_id for position in range(50)]
    assert first != [draw(LOGITS, other, [], position).token_id for position in range(50)]
    assert first != [draw(LOGITS, spec, [], position + 1).token_id for position in range(50)]


def test_rounding_of_the_logits_does_not_change_the_tokens() -> None:
    spec = spec_of(temperature=1.0, top_p=0.9, seed=3)
    noisy = LOGITS + 1e-6 * torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0])
    for position in range(200):
        assert draw(LOGITS, spec, [], position) == draw(noisy, spec, [], position)


def test_a_bias_can_ban_and_force() -> None:
    assert draw(LOGITS, spec_of(logit_bias={0: -100.0}), [], 0).token_id == 1
    assert draw(LOGITS, spec_of(logit_bias={4: 100.0, 999: 100.0}), [], 0).token_id == 4


def test_presence_penalty_counts_once_and_frequency_penalty_counts_each() -> None:
    # Token 0 leads token 1 by 1.0.
    assert draw(LOGITS, spec_of(presence_penalty=0.6), [0, 0], 0).token_id == 0
    assert draw(LOGITS, spec_of(frequency_penalty=0.6), [0, 0], 0).token_id == 1
    assert draw(LOGITS, spec_of(presence_penalty=1.1), [0], 0).token_id == 1


def test_logprobs_are_the_models_own() -> None:
    spec = spec_of(temperature=0.0, logit_bias={2: 100.0}, top_logprobs=2)
    one = draw(LOGITS, spec, [], 0)
    wanted = LOGITS.log_softmax(-1).tolist()
    assert one.token_id == 2
    assert one.logprob == pytest.approx(wanted[2])
    assert [token_id for token_id, _ in one.top] == [0, 1]
    assert [value for _, value in one.top] == pytest.approx(wanted[:2])


def test_without_logprobs_none_are_reported() -> None:
    one = draw(LOGITS, spec_of(), [], 0)
    assert one.logprob is None
    assert one.top == ()


def test_logits_that_are_not_numbers_are_an_error() -> None:
    with pytest.raises(ArithmeticError):
        draw(torch.full((5,), float("nan")), spec_of(), [], 0)


def test_what_was_drawn_survives_the_ring() -> None:
    specs = [spec_of(), spec_of(top_logprobs=0), spec_of(top_logprobs=3)]
    rows = [draw(LOGITS, spec, [], 0) for spec in specs]
    assert agree(rows, specs, RingGroup(None, rank=0, size=1)) == rows


def test_what_is_not_allowed_is_never_drawn_however_it_is_biased() -> None:
    allowed_V = torch.tensor([False, False, True, False, True])
    spec = spec_of(temperature=1.0, logit_bias={0: 100.0})
    tokens = {draw(LOGITS, spec, [], position, allowed_V).token_id for position in range(200)}
    assert tokens == {2, 4}


def test_logprobs_do_not_know_what_is_allowed() -> None:
    allowed_V = torch.tensor([False, True, False, False, False])
    one = draw(LOGITS, spec_of(top_logprobs=1), [], 0, allowed_V)
    assert (one.token_id, one.top[0][0]) == (1, 0)


def test_where_nothing_possible_is_allowed_no_token_is_drawn() -> None:
    logits_V = torch.tensor([0.0, float("-inf")])
    assert draw(logits_V, spec_of(), [], 0, torch.tensor([False, True])).token_id == NO_TOKEN
    specs = [spec_of(), spec_of(top_logprobs=2)]
    rows = [draw(logits_V, spec, [], 0, torch.tensor([False, True])) for spec in specs]
    agreed = agree(rows, specs, RingGroup(None, rank=0, size=1))
    assert [one.token_id for one in agreed] == [NO_TOKEN, NO_TOKEN]
