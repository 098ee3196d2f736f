"""A query's scope as the SQL that LanceDB filters rows by before it ranks them; pure.

Attributes lie in a JSON column under keys that name the kind of their value (`rows.json_key`),
so a value of another kind is a missing key, which gives NULL.
"""

from collections.abc import Mapping, Sequence

from retrieval.api import AllOf, Attribute, Comparator, Comparison, Filter, StoreQuery
from retrieval.filters import NEGATIONS, kind_of, values_of
from retrieval.stores.rows import json_key

_READERS: Mapping[type, str] = {
    str: "json_get_string",
    float: "json_get_float",
    bool: "json_get_bool",
}
_ORDER: Mapping[Comparator, str] = {
    Comparator.GT: ">",
    Comparator.GTE: ">=",
    Comparator.LT: "<",
    Comparator.LTE: "<=",
}


def scope_sql(query: StoreQuery) -> str:
    """Collection, documents and filter of the query; there must be documents, or None."""
    parts = [f"collection = {quoted(query.collection)}"]
    if query.document_ids is not None:
        parts.append(_any_of("document_id", query.document_ids))
    if query.filter is not None:
        parts.append(_filter_sql(query.filter))
    return " AND ".join(parts)


def document_sql(collection: str, document_id: str) -> str:
    return f"collection = {quoted(collection)} AND document_id = {quoted(document_id)}"


def quoted(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _any_of(column: str, values: Sequence[str]) -> str:
    return f"{column} IN ({', '.join(map(quoted, values))})"


def _filter_sql(wanted: Filter) -> str:
    if isinstance(wanted, Comparison):
        return _comparison_sql(wanted)
    word, empty = (" AND ", "true") if isinstance(wanted, AllOf) else (" OR ", "false")
    return f"({word.join(map(_filter_sql, wanted.filters)) or empty})"


def _comparison_sql(wanted: Comparison) -> str:
    if wanted.comparator in _ORDER:
        [value] = values_of(wanted)
        sign = _ORDER[wanted.comparator]
        return f"coalesce({_read(wanted.key, value)} {sign} {_literal(value)}, false)"
    by_kind: dict[type, list[Attribute]] = {}
    for value in values_of(wanted):
        by_kind.setdefault(kind_of(value), []).append(value)
    found = [
        f"coalesce({_read(wanted.key, values[0])} IN ({', '.join(map(_literal, values))}), false)"
        for values in by_kind.values()
    ]
    any_found = f"({' OR '.join(found) or 'false'})"
    return f"NOT {any_found}" if wanted.comparator in NEGATIONS else any_found


def _read(key: str, value: Attribute) -> str:
    return f"{_READERS[kind_of(value)]}(attributes, {quoted(json_key(key, value))})"


def _literal(value: Attribute) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return quoted(value)
    return f"CAST('{float(value)!r}' AS DOUBLE)"
