"""A store query as OpenSearch's query bodies, and its scores as cosines; pure."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from retrieval.api import AllOf, Attribute, Comparator, Comparison, Filter, StoreQuery
from retrieval.config import KnnEngine
from retrieval.filters import NEGATIONS, values_of
from retrieval.stores.opensearch.documents import (
    SOURCE_FIELDS,
    VECTOR_FIELD,
    Json,
    after_prefix,
    attribute_prefix,
    attribute_term,
)

MAX_TERMS = 65_536
"""Values in one `terms` clause (`index.max_terms_count`); more ids go into several clauses."""

MAX_WORDS = 512
"""Distinct words in one lexical query: a query has 1,024 clauses by default, filters included."""


def search_bodies(query: StoreQuery, *, with_vectors: bool) -> list[Json]:
    """The count, the vector side, and the lexical side in one body or, for a long query, more."""
    scope = scope_filter(query)
    source = {"includes": [*SOURCE_FIELDS, *([VECTOR_FIELD] if with_vectors else [])]}
    page: Json = {"size": query.num_candidates, "_source": source, "track_total_hits": False}
    count: Json = {"size": 0, "track_total_hits": True, "query": {"bool": {"filter": scope}}}
    knn = {
        "vector": list(query.vector),
        "k": query.num_candidates,
        "filter": {"bool": {"filter": scope}},
    }
    return [
        count,
        {**page, "query": {"knn": {"vector": knn}}},
        *({**page, "query": _worded(group, scope)} for group in _word_groups(query.terms)),
    ]


def scope_filter(query: StoreQuery) -> list[Json]:
    parts: list[Json] = [{"term": {"collection": query.collection}}]
    if query.document_ids is not None:
        parts.append(any_value("document_id", query.document_ids))
    if query.filter is not None:
        parts.append(_filter(query.filter))
    return parts


def document_filter(
    collection: str, document_id: str, *, generation: str | None = None, but: str | None = None
) -> Json:
    """A document's chunks: of one generation, or of all but one."""
    parts: list[Json] = [
        {"term": {"collection": collection}},
        {"term": {"document_id": document_id}},
    ]
    if generation is not None:
        parts.append({"term": {"generation": generation}})
    body: Json = {"filter": parts}
    if but is not None:
        body["must_not"] = [{"term": {"generation": but}}]
    return {"bool": body}


def any_value(field: str, values: Sequence[str]) -> Json:
    groups = [values[first : first + MAX_TERMS] for first in range(0, len(values), MAX_TERMS)]
    return _any_of([{"terms": {field: list(group)}} for group in groups])


def cosine_of(score: float, engine: KnnEngine) -> float:
    """The cosine behind a k-NN score, by the formula of the engine's space."""
    if engine is KnnEngine.LUCENE:
        return 2.0 * score - 1.0
    return score - 1.0 if score >= 1.0 else 1.0 - 1.0 / score


def _word_groups(terms: str) -> Iterator[Mapping[str, int]]:
    counts = Counter(terms.split())
    words = list(counts)
    for first in range(0, len(words), MAX_WORDS):
        yield {word: counts[word] for word in words[first : first + MAX_WORDS]}


def _worded(counts: Mapping[str, int], scope: Sequence[Json]) -> Json:
    """BM25 of every word, once for each time that it is asked."""
    once = " ".join(word for word, count in counts.items() if count == 1)
    clauses: list[Json] = [{"match": {"terms": once}}] if once else []
    clauses += [
        {"term": {"terms": {"value": word, "boost": count}}}
        for word, count in counts.items()
        if count > 1
    ]
    return {"bool": {"should": clauses, "minimum_should_match": 1, "filter": list(scope)}}


def _filter(wanted: Filter) -> Json:
    match wanted:
        case Comparison():
            return _comparison(wanted)
        case AllOf(filters):
            return {"bool": {"filter": [_filter(each) for each in filters]}} if filters else _ALL
        case _:
            return _any_of([_filter(each) for each in wanted.filters])


def _any_of(clauses: Sequence[Json]) -> Json:
    if not clauses:
        return {"match_none": {}}
    if len(clauses) == 1:
        return clauses[0]
    return {"bool": {"should": list(clauses), "minimum_should_match": 1}}


_ALL: Json = {"match_all": {}}


def _comparison(wanted: Comparison) -> Json:
    if wanted.comparator in _RANGES:
        [value] = values_of(wanted)
        return {"range": {"attribute_terms": _range(wanted.key, wanted.comparator, value)}}
    terms = [attribute_term(wanted.key, value) for value in values_of(wanted)]
    found: Json = {"terms": {"attribute_terms": terms}}
    return {"bool": {"must_not": [found]}} if wanted.comparator in NEGATIONS else found


_RANGES: Mapping[Comparator, str] = {
    Comparator.GT: "gt",
    Comparator.GTE: "gte",
    Comparator.LT: "lt",
    Comparator.LTE: "lte",
}


def _range(key: str, comparator: Comparator, value: Attribute) -> Json:
    bounds: Json = {_RANGES[comparator]: attribute_term(key, value)}
    if comparator in (Comparator.GT, Comparator.GTE):
        return bounds | {"lt": after_prefix(key, value)}
    return bounds | {"gte": attribute_prefix(key, value)}
