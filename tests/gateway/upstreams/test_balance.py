"""Which replica a prompt goes to."""

from array import array

from hypothesis import given
from hypothesis import strategies as st

from gateway.upstreams.balance import PINNED_SLACK_TOKENS, Affinity, affinity, choose, order

NAMES = ["a", "b", "c", "d"]
keys = st.binary(min_size=1, max_size=16)
waiting = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 10**6), min_size=1)
LONG = array("i", range(2000))


@given(key=keys, gone=st.sampled_from(NAMES))
def test_a_replica_that_goes_away_moves_only_its_own_sessions(key: bytes, gone: str) -> None:
    left = [name for name in NAMES if name != gone]
    assert order(key, left) == [name for name in order(key, NAMES) if name != gone]


def test_sessions_are_spread_evenly() -> None:
    firsts = [order(str(i).encode(), NAMES)[0] for i in range(4000)]
    assert all(850 < firsts.count(name) < 1150 for name in NAMES)


@given(waiting=waiting, key=keys)
def test_without_a_session_the_least_busy_reads(waiting: dict[str, int], key: bytes) -> None:
    assert waiting[choose(waiting, Affinity(key, 0))] == min(waiting.values())


@given(waiting=waiting, key=keys, slack=st.integers(0, 10**6))
def test_a_session_stays_unless_its_replica_is_much_busier(
    waiting: dict[str, int], key: bytes, slack: int
) -> None:
    chosen = choose(waiting, Affinity(key, slack))
    names = order(key, list(waiting))
    least = min(waiting.values())
    assert waiting[chosen] <= least + slack
    assert all(waiting[name] > least + slack for name in names[: names.index(chosen)])


def test_a_session_is_its_tenant_s_and_goes_before_the_prefix() -> None:
    own = affinity("r1", "ann/s", LONG)
    assert own == affinity("r2", "ann/s", LONG)
    assert own.key != affinity("r1", "bob/s", LONG).key
    assert own.key == affinity("r1", "ann/s", LONG[:7]).key


def test_long_prompts_without_a_session_share_a_replica_by_their_beginning() -> None:
    other_end = LONG[:1500] + array("i", [1])
    assert affinity("r1", "ann/", LONG).key == affinity("r2", "ann/", other_end).key
    assert affinity("r1", "ann/", LONG).key != affinity("r1", "ann/", LONG[1:]).key
    assert affinity("r1", "ann/", LONG).slack_tokens == PINNED_SLACK_TOKENS


def test_short_prompts_are_tied_to_nothing() -> None:
    short = affinity("r1", "ann/", LONG[:9])
    assert short.slack_tokens == 0
    assert short.key != affinity("r2", "ann/", LONG[:9]).key
