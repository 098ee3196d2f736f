"""Learning a prefill's time: right for exact data, bounded and hardly moved by strays."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.upstreams.pace import WINDOW, Pace, PaceSettings

SETTINGS = PaceSettings()
lengths = st.integers(1, 2_000_000)
seen = st.lists(st.tuples(lengths, st.floats(1e-6, 1e5)), max_size=2 * WINDOW)


def taught(observations: list[tuple[int, float]]) -> Pace:
    pace = Pace()
    for num, seconds in observations:
        pace.observe(num, seconds)
    return pace


def test_it_starts_slow() -> None:
    assert Pace().estimate_s(1000) == pytest.approx(1.0, rel=0.01)
    assert Pace().deadline_s(1) == SETTINGS.least_s


@given(
    k=st.floats(1e-5, 1e-2),
    c=st.floats(0, 5e-5),
    nums=st.lists(st.integers(2_000, 500_000), min_size=8, max_size=WINDOW, unique=True).filter(
        lambda nums: max(nums) > 8 * min(nums)
    ),
)
def test_exact_times_teach_the_exact_pace(k: float, c: float, nums: list[int]) -> None:
    pace = taught([(num, k * (num + c * num * num)) for num in nums])
    for num in (min(nums), max(nums)):
        assert pace.estimate_s(num) == pytest.approx(k * (num + c * num * num), rel=0.02)


@given(seen=seen, num=lengths, more=lengths)
def test_estimates_grow_with_length_and_stay_in_bounds(
    seen: list[tuple[int, float]], num: int, more: int
) -> None:
    pace = taught(seen)
    assert SETTINGS.least_k <= pace.k <= SETTINGS.most_k
    assert 0 <= pace.c <= SETTINGS.most_c
    assert pace.estimate_s(num) < pace.estimate_s(num + more)
    assert pace.deadline_s(num) >= max(SETTINGS.least_s, pace.estimate_s(num))


@given(st.lists(st.floats(1e-3, 1e5), min_size=1, max_size=5))
def test_a_few_strays_move_nothing(strays: list[float]) -> None:
    steady = [(num, 2e-4 * num) for num in range(4_000, 84_000, 4_000)]
    pace = taught([*steady, *((50_000, stray) for stray in strays)])
    assert pace.estimate_s(60_000) == pytest.approx(12.0, rel=0.3)


def test_short_prompts_and_broken_clocks_teach_nothing() -> None:
    assert taught([(5, 90.0), (50_000, 0.0), (50_000, -1.0)]).k == SETTINGS.k
