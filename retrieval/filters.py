"""What a filter means: the one predicate that every store's own translation is held to. Pure."""

import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence

from retrieval.api import (
    AllOf,
    AnyOf,
    Attribute,
    Chunk,
    Comparator,
    Comparison,
    Filter,
    QueryRejected,
    StoreQuery,
)

MAX_DEPTH = 16
"""Nested and/or; deeper ones are no question of a person, and stores parse them recursively."""

MAX_COMPARISONS = 256
"""OpenSearch takes 1,024 clauses in a query by default, and the query's words need theirs."""

MAX_VALUES = 1_000
"""In all lists of IN and NIN together."""

NEGATIONS = frozenset({Comparator.NE, Comparator.NIN})
_ORDER: Mapping[Comparator, Callable[[float | str, float | str], bool]] = {
    Comparator.GT: operator.gt,
    Comparator.GTE: operator.ge,
    Comparator.LT: operator.lt,
    Comparator.LTE: operator.le,
}


def scope_of(query: StoreQuery) -> Callable[[Chunk], bool]:
    """Whether the query may find a chunk."""
    ids = None if query.document_ids is None else frozenset(query.document_ids)

    def is_inside(chunk: Chunk) -> bool:
        return (
            chunk.collection == query.collection
            and (ids is None or chunk.document_id in ids)
            and (query.filter is None or matches(query.filter, chunk.attributes))
        )

    return is_inside


def matches(wanted: Filter, attributes: Mapping[str, Attribute]) -> bool:
    """`AllOf(())` lets everything through, `AnyOf(())` nothing."""
    match wanted:
        case AllOf(filters):
            return all(matches(each, attributes) for each in filters)
        case AnyOf(filters):
            return any(matches(each, attributes) for each in filters)
        case Comparison():
            return _compares(wanted, attributes.get(wanted.key))


def values_of(comparison: Comparison) -> tuple[Attribute, ...]:
    """The compared values: one, or those of IN and NIN."""
    value = comparison.value
    return value if isinstance(value, tuple) else (value,)


def kind_of(value: Attribute) -> type[str] | type[float] | type[bool]:
    """Values of different kinds are never equal: `1` is not `True`, and `"1"` neither."""
    if isinstance(value, bool):
        return bool
    return str if isinstance(value, str) else float


def check_filter(wanted: Filter) -> None:
    """Raises QueryRejected, naming the limit, when no store could hold to the filter."""
    comparisons = list(_comparisons(wanted, depth=1))
    num_values = sum(len(values_of(each)) for each in comparisons)
    for count, limit, noun in (
        (len(comparisons), MAX_COMPARISONS, "comparisons"),
        (num_values, MAX_VALUES, "values"),
    ):
        if count > limit:
            raise QueryRejected(f"the filter has {count} {noun}; the limit is {limit}")
    for each in comparisons:
        _check_comparison(each)


def _comparisons(wanted: Filter, *, depth: int) -> Iterator[Comparison]:
    if depth > MAX_DEPTH:
        raise QueryRejected(f"the filter is nested deeper than {MAX_DEPTH} levels")
    if isinstance(wanted, Comparison):
        yield wanted
        return
    for each in wanted.filters:
        yield from _comparisons(each, depth=depth + 1)


def _check_comparison(wanted: Comparison) -> None:
    takes_many = wanted.comparator in (Comparator.IN, Comparator.NIN)
    if takes_many is not isinstance(wanted.value, tuple):
        needed = "a list of values" if takes_many else "one value"
        raise QueryRejected(f"{wanted.comparator} on {wanted.key!r} takes {needed}")
    values = values_of(wanted)
    if any(isinstance(each, float) and not math.isfinite(each) for each in values):
        raise QueryRejected(f"{wanted.comparator} on {wanted.key!r} takes finite numbers")
    if wanted.comparator in _ORDER and kind_of(values[0]) is bool:
        raise QueryRejected(f"{wanted.comparator} on {wanted.key!r} cannot order true and false")
    if not all(is_text(each) for each in (wanted.key, *values) if isinstance(each, str)):
        raise QueryRejected(f"{wanted.comparator} on {wanted.key!r} holds half a character")


def is_text(value: str) -> bool:
    """Whether UTF-8 can say it: JSON's escapes can bring in lone surrogates."""
    return not any("\ud800" <= char <= "\udfff" for char in value)


def _compares(wanted: Comparison, found: Attribute | None) -> bool:
    values = [each for each in values_of(wanted) if _same_kind(each, found)]
    if wanted.comparator in _ORDER:
        return bool(values) and _ordered(wanted.comparator, found, values)
    return (found in values) is not (wanted.comparator in NEGATIONS)


def _same_kind(value: Attribute, found: Attribute | None) -> bool:
    return found is not None and kind_of(value) is kind_of(found)


def _ordered(comparator: Comparator, found: Attribute | None, values: Sequence[Attribute]) -> bool:
    assert found is not None, "only an attribute of the value's kind is compared"
    return _ORDER[comparator](found, values[0])
