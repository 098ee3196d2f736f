"""Who travels: a pure choice by counts."""

import pytest

from engines.local.travel import TravelRule

SMOLLM2 = {"num_heads": 9, "num_key_heads": 3}
LLAMA_405B = {"num_heads": 128, "num_key_heads": 8}


@pytest.mark.parametrize(
    ("num_new", "num_seen", "heads", "keys_travel"),
    [
        (512, 512, SMOLLM2, True),
        (512, 768, SMOLLM2, True),
        (512, 769, SMOLLM2, False),
        (512, 16_896, SMOLLM2, False),
        (1_280, 128_000, LLAMA_405B, False),
        (16_000, 128_000, LLAMA_405B, True),
        (15_999, 128_000, LLAMA_405B, False),
    ],
)
def test_keys_travel_from_twice_the_share_of_key_heads_on(
    num_new: int, num_seen: int, heads: dict[str, int], keys_travel: bool
) -> None:
    given = TravelRule().keys_travel(num_new=num_new, num_seen=num_seen, **heads)
    assert given is keys_travel


def test_the_setting_moves_the_crossing() -> None:
    measured = TravelRule(keys_from=0.4)
    assert measured.keys_travel(num_new=12_800, num_seen=128_000, **LLAMA_405B)
    assert not measured.keys_travel(num_new=1_280, num_seen=128_000, **LLAMA_405B)


def test_without_grouped_heads_queries_travel_unless_they_are_most_of_the_prompt() -> None:
    plain = {"num_heads": 8, "num_key_heads": 8}
    assert not TravelRule().keys_travel(num_new=100, num_seen=100, **plain)
