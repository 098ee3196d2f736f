"""Retries wait longer each time, within bounds."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.retry import RetryPolicy, delay_before

POLICY = RetryPolicy(base_delay_s=1.0, max_delay_s=8.0)


@given(attempt=st.integers(2, 10_000), seed=st.integers(0, 1000))
def test_a_delay_is_never_longer_than_its_ceiling(attempt: int, seed: int) -> None:
    ceiling = min(8.0, 2.0 ** min(attempt - 2, 30))
    assert 0 <= delay_before(attempt, POLICY, Random(seed)) <= ceiling


def test_later_retries_wait_longer_on_average() -> None:
    rng = Random(1)
    means = [sum(delay_before(n, POLICY, rng) for _ in range(500)) / 500 for n in (2, 3, 4, 5)]
    assert means == sorted(means)
    assert means[-1] > 4 * means[0]


@pytest.mark.parametrize("bad", [{"max_attempts": 0}, {"base_delay_s": 9.0, "max_delay_s": 1.0}])
def test_a_senseless_policy_is_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must"):
        RetryPolicy(**bad)  # type: ignore[arg-type]
