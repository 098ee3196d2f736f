"""Search requests as they go to the worker's face: plain values, filters with their kind named."""

from typing import assert_never

import msgspec

from retrieval.api import (
    AllOf,
    AnyOf,
    Attribute,
    Comparator,
    Comparison,
    Filter,
    SearchRequest,
)


class WireComparison(msgspec.Struct, frozen=True, tag="compare"):
    key: str
    comparator: Comparator
    value: bool | float | str | tuple[bool | float | str, ...]


class WireAll(msgspec.Struct, frozen=True, tag="and"):
    filters: "tuple[WireFilter, ...]"


class WireAny(msgspec.Struct, frozen=True, tag="or"):
    filters: "tuple[WireFilter, ...]"


WireFilter = WireComparison | WireAll | WireAny


class WireSearch(msgspec.Struct, frozen=True, kw_only=True):
    query: str
    document_ids: list[str] | None
    collection: str = ""
    filter: WireFilter | None = None
    top_k: int = 8
    deadline_s: float = 5.0


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(WireSearch)


def encode_search(request: SearchRequest) -> bytes:
    ids = request.document_ids
    return _encoder.encode(
        WireSearch(
            query=request.query,
            document_ids=None if ids is None else list(ids),
            collection=request.collection,
            filter=None if request.filter is None else _wired(request.filter),
            top_k=request.top_k,
            deadline_s=request.deadline_s,
        )
    )


def decode_search(body: bytes) -> SearchRequest:
    """Raises msgspec.DecodeError."""
    found = _decoder.decode(body)
    return SearchRequest(
        query=found.query,
        document_ids=found.document_ids,
        collection=found.collection,
        filter=None if found.filter is None else _unwired(found.filter),
        top_k=found.top_k,
        deadline_s=found.deadline_s,
    )


def _wired(wanted: Filter) -> WireFilter:
    match wanted:
        case Comparison(key, comparator, value):
            return WireComparison(key, comparator, value)
        case AllOf(filters):
            return WireAll(tuple(_wired(each) for each in filters))
        case AnyOf(filters):
            return WireAny(tuple(_wired(each) for each in filters))
    assert_never(wanted)


def _unwired(wanted: WireFilter) -> Filter:
    match wanted:
        case WireComparison():
            return Comparison(wanted.key, wanted.comparator, _value(wanted.value))
        case WireAll():
            return AllOf(tuple(_unwired(each) for each in wanted.filters))
        case WireAny():
            return AnyOf(tuple(_unwired(each) for each in wanted.filters))
    assert_never(wanted)


def _value(
    value: "bool | float | str | tuple[bool | float | str, ...]",
) -> Attribute | tuple[Attribute, ...]:
    return value
