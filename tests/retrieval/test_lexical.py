"""BM25 in memory against the formula written out."""

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval.lexical import K1, B, LexicalIndex

WORDS = st.lists(st.sampled_from("abcdef"), max_size=12)


def slow_bm25(docs: list[list[str]], query: list[str], place: int) -> float:
    mean = sum(map(len, docs)) / len(docs)
    counts = Counter(docs[place])
    total = 0.0
    for term in query:
        df = sum(term in doc for doc in docs)
        idf = math.log(1 + (len(docs) - df + 0.5) / (df + 0.5))
        norm = K1 * (1 - B + B * len(docs[place]) / mean) if mean else 0
        if counts[term]:
            total += idf * counts[term] * (K1 + 1) / (counts[term] + norm)
    return total


@given(docs=st.lists(WORDS, min_size=1, max_size=8), query=WORDS)
def test_scores_are_the_formula(docs: list[list[str]], query: list[str]) -> None:
    scores = LexicalIndex.from_terms(docs).scores(query)
    expected = [slow_bm25(docs, query, place) for place in range(len(docs))]
    assert list(scores) == pytest.approx(expected, rel=1e-4, abs=1e-5)


@given(docs=st.lists(WORDS, min_size=1, max_size=8), query=WORDS, limit=st.integers(1, 9))
def test_the_top_is_the_head_of_the_full_order(
    docs: list[list[str]], query: list[str], limit: int
) -> None:
    index = LexicalIndex.from_terms(docs)
    scores = index.scores(query)
    order = sorted(range(len(docs)), key=lambda place: (-scores[place], place))
    expected = [place for place in order if scores[place] > 0][:limit]
    assert [place for place, _ in index.top(query, limit)] == expected


def test_no_texts_are_no_results() -> None:
    assert LexicalIndex.build([]).top(["word"], 5) == []


def test_unknown_terms_are_no_results() -> None:
    assert LexicalIndex.build(["alpha beta"]).top(["gamma"], 5) == []


def test_texts_are_analysed() -> None:
    index = LexicalIndex.build(["The tenants were running.", "maxNumSeqs"])
    assert [place for place, _ in index.top(["run"], 5)] == [0]
    assert [place for place, _ in index.top(["num"], 5)] == [1]
