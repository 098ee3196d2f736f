"""Search requests survive the way to the worker."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.wire import decode_search, encode_search
from retrieval.api import AllOf, AnyOf, Comparator, Comparison, Filter, SearchRequest

scalars = st.one_of(
    st.text(max_size=5), st.booleans(), st.floats(allow_nan=False, allow_infinity=False)
)
comparisons = st.one_of(
    st.builds(Comparison, st.text(max_size=5), st.sampled_from(Comparator), scalars),
    st.builds(
        Comparison,
        st.text(max_size=5),
        st.sampled_from([Comparator.IN, Comparator.NIN]),
        st.lists(scalars, max_size=3).map(tuple),
    ),
)
filters: st.SearchStrategy[Filter] = st.recursive(
    comparisons,
    lambda inner: st.one_of(
        st.builds(AllOf, st.lists(inner, max_size=3).map(tuple)),
        st.builds(AnyOf, st.lists(inner, max_size=3).map(tuple)),
    ),
    max_leaves=6,
)


@given(st.none() | filters, st.none() | st.lists(st.text(max_size=5), max_size=3))
def test_a_request_comes_back_as_it_was(wanted: Filter | None, ids: list[str] | None) -> None:
    request = SearchRequest(
        query="größe?", document_ids=ids, collection="vs_1", filter=wanted, top_k=3, deadline_s=2.5
    )
    back = decode_search(encode_search(request))
    assert back == request
    assert repr(back.filter) == repr(request.filter)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"query": 3, "document_ids": []}'])
def test_what_is_no_request_is_refused(body: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_search(body)
