"""The mapping and the terms that stand for attributes, without a node."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval.config import KnnEngine, OpenSearchConfig, OpenSearchKind
from retrieval.embedder import FakeEmbedder
from retrieval.stores.opensearch.documents import (
    after_prefix,
    attribute_prefix,
    attribute_term,
    index_body,
)
from retrieval.stores.opensearch.queries import cosine_of

GOLDEN = Path(__file__).parent / "index.json"
numbers = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**53), 2**53)


@given(numbers, numbers)
def test_terms_of_numbers_order_as_the_numbers_do(first: float, second: float) -> None:
    low, high = attribute_term("k", first), attribute_term("k", second)
    assert (low < high, low == high) == (float(first) < float(second), first == second)


@given(st.text(max_size=6), st.text(max_size=6), st.text(max_size=6) | numbers)
def test_a_keys_terms_lie_between_its_bounds_and_no_others_do(
    key: str, other: str, value: str | float
) -> None:
    term = attribute_term(other, value).encode()
    inside = attribute_prefix(key, value).encode() <= term < after_prefix(key, value).encode()
    assert inside == (key == other)


def test_the_index_is_made_as_it_always_was() -> None:
    """A change here needs a new LAYOUT: indices that exist keep their mapping."""
    config = OpenSearchConfig(url="http://localhost")
    assert index_body(FakeEmbedder(dimension=8), config) == json.loads(GOLDEN.read_text())


def test_serverless_is_asked_for_neither_shards_nor_lucene() -> None:
    config = OpenSearchConfig(
        url="http://localhost", kind=OpenSearchKind.SERVERLESS, engine=KnnEngine.FAISS
    )
    body = index_body(FakeEmbedder(), config)
    assert body["settings"] == {"index": {"knn": True}}
    assert '"engine": "faiss"' in json.dumps(body)
    with pytest.raises(ValueError, match="only the k-NN engine faiss"):
        OpenSearchConfig(url="http://localhost", kind=OpenSearchKind.SERVERLESS)


@given(st.floats(-1, 1))
def test_a_score_gives_back_its_cosine(cosine: float) -> None:
    """The formulas by which OpenSearch makes scores of cosinesimil and of innerproduct."""
    lucene = (1 + cosine) / 2
    faiss = 1 + cosine if cosine >= 0 else 1 / (1 - cosine)
    assert cosine_of(lucene, KnnEngine.LUCENE) == pytest.approx(cosine, abs=1e-9)
    assert cosine_of(faiss, KnnEngine.FAISS) == pytest.approx(cosine, abs=1e-9)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"url": "localhost:9200"}, "must begin with http"),
        ({"url": "http://x", "bulk_bytes": 0}, "must be positive"),
        ({"url": "http://x", "replicas": -1}, "must be positive"),
    ],
)
def test_settings_that_cannot_be_are_refused(wrong: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        OpenSearchConfig(**wrong)  # type: ignore[arg-type]
