"""The breaker's life under a clock of our own."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.upstreams.breaker import Breaker, BreakerSettings, Circuit

SETTINGS = BreakerSettings(failures=3, rest_s=2.0, most_rest_s=6.0)


def failing(breaker: Breaker, times: int, now_s: float) -> None:
    for _ in range(times):
        breaker.begin(now_s)
        breaker.failed(now_s)


def opened(now_s: float = 0.0) -> Breaker:
    breaker = Breaker(SETTINGS)
    failing(breaker, 3, now_s)
    return breaker


def test_it_opens_after_failures_in_a_row_only() -> None:
    breaker = Breaker(SETTINGS)
    failing(breaker, 2, 0.0)
    breaker.begin(0.0)
    breaker.succeeded()
    failing(breaker, 2, 0.0)
    assert breaker.allows(0.0)
    failing(breaker, 1, 0.0)
    assert not breaker.allows(1.9)
    assert breaker.ready_at(0.5) == 2.0


def test_one_request_tries_it_and_its_success_closes_it() -> None:
    breaker = opened()
    assert breaker.circuit(2.0) is Circuit.TRYING
    breaker.begin(2.0)
    assert not breaker.allows(2.0)
    breaker.succeeded()
    assert breaker.circuit(2.0) is Circuit.CLOSED


def test_failed_tries_double_the_rest_up_to_a_limit() -> None:
    breaker, now_s = opened(), 2.0
    for rest_s in (4.0, 6.0, 6.0):
        failing(breaker, 1, now_s)
        assert not breaker.allows(now_s + rest_s - 0.01)
        assert breaker.allows(now_s + rest_s)
        now_s += rest_s


def test_a_try_whose_client_left_frees_the_next() -> None:
    breaker = opened()
    breaker.begin(2.0)
    breaker.abandoned()
    assert breaker.allows(2.0)


def test_requests_that_began_before_it_opened_change_nothing_when_they_fail_late() -> None:
    breaker = Breaker(SETTINGS)
    for _ in range(5):
        breaker.begin(0.0)
    for _ in range(5):
        breaker.failed(0.0)
    assert breaker.ready_at(0.0) == 2.0


def test_retry_after_is_no_failure() -> None:
    breaker = Breaker(SETTINGS)
    breaker.pause(7.0)
    assert not breaker.allows(6.9)
    assert breaker.allows(7.0)
    assert breaker.circuit(0.0) is Circuit.CLOSED


@given(st.lists(st.tuples(st.sampled_from(["ok", "fail", "leave"]), st.floats(0, 10)), max_size=60))
def test_it_never_stays_shut_for_ever(history: list[tuple[str, float]]) -> None:
    breaker, now_s = Breaker(SETTINGS), 0.0
    for outcome, passed_s in history:
        now_s += passed_s
        if breaker.allows(now_s):
            breaker.begin(now_s)
            match outcome:
                case "ok":
                    breaker.succeeded()
                case "fail":
                    breaker.failed(now_s)
                case _:
                    breaker.abandoned()
    assert breaker.ready_at(now_s) <= now_s + SETTINGS.most_rest_s
    assert breaker.allows(breaker.ready_at(now_s))
