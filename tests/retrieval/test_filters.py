"""What filters mean, by examples; the stores are held to the same predicate by a property."""

from collections.abc import Callable

import pytest
from hypothesis import given

from retrieval.api import (
    AllOf,
    AnyOf,
    Attribute,
    Comparator,
    Comparison,
    Filter,
    QueryRejected,
)
from retrieval.filters import MAX_COMPARISONS, MAX_DEPTH, MAX_VALUES, check_filter, matches
from tests.retrieval import filters

FILE: dict[str, Attribute] = {"year": 2024.0, "lang": "de", "draft": False}


@pytest.mark.parametrize(
    ("key", "comparator", "value", "expected"),
    [
        ("year", "eq", 2024, True),
        ("year", "eq", "2024", False),
        ("year", "ne", "2024", True),
        ("year", "gt", 2024, False),
        ("year", "gte", 2024, True),
        ("year", "lt", 2024.5, True),
        ("year", "lte", "3000", False),
        ("lang", "gt", "aa", True),
        ("lang", "lt", "de", False),
        ("lang", "in", ("en", "de"), True),
        ("lang", "in", (), False),
        ("lang", "nin", ("en", 1.0), True),
        ("lang", "nin", ("de",), False),
        ("draft", "eq", False, True),
        ("draft", "eq", 0, False),
        ("draft", "nin", (0.0, "False"), True),
        ("missing", "eq", "", False),
        ("missing", "ne", "", True),
        ("missing", "gt", -1e9, False),
        ("missing", "in", ("",), False),
        ("missing", "nin", ("",), True),
    ],
)
def test_a_comparison(
    key: str, comparator: str, value: Attribute | tuple[Attribute, ...], expected: bool
) -> None:
    wanted = Comparison(key, Comparator(comparator), value)
    assert matches(wanted, FILE) is expected


def test_filters_nest() -> None:
    german = Comparison("lang", Comparator.EQ, "de")
    late = Comparison("year", Comparator.GT, 2024)
    assert matches(AnyOf((late, AllOf((german, AnyOf((german,)))))), FILE)
    assert not matches(AllOf((german, AnyOf((late,)))), FILE)
    assert matches(AllOf(()), FILE)
    assert not matches(AnyOf(()), FILE)


def nested(depth: int) -> Filter:
    wanted: Filter = Comparison("k", Comparator.EQ, 1)
    for _ in range(depth - 1):
        wanted = AllOf((wanted,))
    return wanted


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (lambda: nested(MAX_DEPTH + 1), f"deeper than {MAX_DEPTH} levels"),
        (lambda: AnyOf((nested(1),) * (MAX_COMPARISONS + 1)), "257 comparisons; the limit is 256"),
        (
            lambda: Comparison("k", Comparator.IN, (1.0,) * (MAX_VALUES + 1)),
            "1001 values; the limit is 1000",
        ),
        (lambda: Comparison("k", Comparator.EQ, ("a",)), "eq on 'k' takes one value"),
        (lambda: Comparison("k", Comparator.NIN, "a"), "nin on 'k' takes a list of values"),
        (lambda: Comparison("k", Comparator.LT, float("nan")), "takes finite numbers"),
        (lambda: Comparison("k", Comparator.GTE, True), "cannot order true and false"),
        (lambda: Comparison("\ud800", Comparator.EQ, "a"), "half a character"),
    ],
)
def test_a_filter_that_no_store_could_keep_is_refused(
    wanted: Callable[[], Filter], message: str
) -> None:
    with pytest.raises(QueryRejected, match=message):
        check_filter(wanted())


@given(filters.filters())
def test_what_a_person_would_ask_is_not_refused(wanted: Filter) -> None:
    check_filter(wanted)


def test_the_limits_themselves_are_allowed() -> None:
    check_filter(nested(MAX_DEPTH))
    check_filter(AllOf((nested(1),) * MAX_COMPARISONS))
