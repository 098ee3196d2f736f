"""Fusion's properties, whatever the scores are."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval.api import Candidates, Hit
from retrieval.config import FusionConfig, FusionMethod
from retrieval.fusion import fuse, vector_weight
from tests.retrieval.chunks import chunk

SUMS = (FusionMethod.Z_SCORE, FusionMethod.MIN_MAX)
SCORE = st.floats(0.01, 50, allow_nan=False)
SIDE = st.dictionaries(st.integers(0, 9), SCORE, max_size=8)


def hits(side: dict[int, float]) -> list[Hit]:
    return [
        Hit(chunk(f"text {number}", start=number * 100), score) for number, score in side.items()
    ]


def candidates(lexical: dict[int, float], vector: dict[int, float]) -> Candidates:
    return Candidates(lexical=hits(lexical), vector=hits(vector))


def ids(fused: object) -> list[int]:
    assert isinstance(fused, list)
    return [hit.chunk.start // 100 for hit in fused]


@pytest.mark.parametrize("method", list(FusionMethod))
@given(lexical=SIDE, vector=SIDE)
def test_scores_are_bounded_and_fall_and_nobody_is_lost(
    method: FusionMethod, lexical: dict[int, float], vector: dict[int, float]
) -> None:
    fused = fuse(candidates(lexical, vector), FusionConfig(method=method))
    scores = [hit.score for hit in fused]
    assert all(0 <= score <= 1 for score in scores)
    assert scores == sorted(scores, reverse=True)
    assert sorted(ids(fused)) == sorted(lexical.keys() | vector.keys())


@pytest.mark.parametrize("method", SUMS)
@given(lexical=SIDE, vector=SIDE, seed=st.randoms())
def test_the_order_of_the_input_is_nothing(
    method: FusionMethod, lexical: dict[int, float], vector: dict[int, float], seed: object
) -> None:
    config = FusionConfig(method=method)
    reversed_input = candidates(dict(reversed(lexical.items())), dict(reversed(vector.items())))
    assert fuse(candidates(lexical, vector), config) == fuse(reversed_input, config)


@pytest.mark.parametrize("method", SUMS)
@given(lexical=SIDE, vector=SIDE)
def test_better_on_both_sides_is_never_worse_in_the_sum(
    method: FusionMethod, lexical: dict[int, float], vector: dict[int, float]
) -> None:
    fused = fuse(candidates(lexical, vector), FusionConfig(method=method, feedback_chunks=0))
    both = [hit for hit in fused if hit.lexical is not None and hit.similarity is not None]
    for better in both:
        for worse in both:
            assert better.lexical is not None
            assert better.similarity is not None
            assert worse.lexical is not None
            assert worse.similarity is not None
            if better.lexical >= worse.lexical and better.similarity >= worse.similarity:
                assert better.score >= worse.score - 1e-9


@pytest.mark.parametrize(("weight", "first"), [(0.0, 1), (1.0, 2)])
@pytest.mark.parametrize("method", list(FusionMethod))
def test_the_weight_decides_between_the_sides(
    method: FusionMethod, weight: float, first: int
) -> None:
    found = candidates({1: 9.0, 2: 1.0, 3: 0.5}, {2: 0.9, 1: 0.1, 3: 0.05})
    fused = fuse(found, FusionConfig(method=method, vector_weight=weight))
    assert ids(fused)[0] == first


def test_ranks_are_fused_where_scores_are_missing() -> None:
    nan = math.nan
    found = candidates({1: nan, 2: nan, 3: nan}, {2: nan, 1: nan})
    fused = fuse(found, FusionConfig(vector_weight=0.5))
    assert fused[0].score == pytest.approx(0.5 + 0.5 * 61 / 62)
    assert fused[-1].score == pytest.approx(0.5 * 61 / 63)
    assert ids(fused)[-1] == 3


def test_a_candidate_one_side_cut_off_gets_that_sides_lowest_score() -> None:
    config = FusionConfig(method=FusionMethod.MIN_MAX, vector_weight=0.5)
    fused = fuse(candidates({1: 10.0, 2: 4.0}, {3: 0.9, 1: 0.1}), config)
    assert {hit.chunk.start // 100: round(hit.score, 6) for hit in fused} == {
        1: 0.5,
        2: 0.0,
        3: 0.5,
    }


def test_a_candidate_that_a_whole_lexical_list_lacks_holds_no_term() -> None:
    config = FusionConfig(method=FusionMethod.MIN_MAX, vector_weight=0.0)
    fused = fuse(candidates({1: 10.0, 2: 4.0}, {3: 0.9, 1: 0.1, 4: 0.1}), config)
    assert {hit.chunk.start // 100: round(hit.score, 6) for hit in fused} == {
        1: 1.0,
        2: 0.4,
        3: 0.0,
        4: 0.0,
    }


def test_a_side_that_says_nothing_decides_nothing() -> None:
    fused = fuse(candidates({1: 2.0, 2: 2.0}, {2: 0.9, 1: 0.1}), FusionConfig())
    assert ids(fused) == [2, 1]


def test_no_candidates_are_no_hits() -> None:
    assert fuse(candidates({}, {}), FusionConfig()) == []


def with_vectors(vectors: dict[int, tuple[float, float]], lexical: dict[int, float]) -> Candidates:
    def vectored(side: dict[int, float]) -> list[Hit]:
        return [replace(hit, vector=vectors[hit.chunk.start // 100]) for hit in hits(side)]

    return Candidates(lexical=vectored(lexical), vector=vectored({1: 0.8}))


def test_vectors_give_every_candidate_its_real_cosine() -> None:
    found = with_vectors({1: (0.8, 0.6), 2: (0.6, 0.8)}, {2: 5.0})
    fused = fuse(found, FusionConfig(), query=(1.0, 0.0))
    assert {hit.chunk.start // 100: hit.similarity for hit in fused} == {
        1: pytest.approx(0.8),
        2: pytest.approx(0.6),
    }


def test_feedback_lifts_what_resembles_the_first_result() -> None:
    vectors = {1: (0.8, 0.6), 2: (0.7, 0.71), 3: (0.7, -0.71)}
    found = with_vectors(vectors, {1: 9.0, 3: 1.1, 2: 1.0})
    off = FusionConfig(vector_weight=0.5, feedback_chunks=0)
    on = FusionConfig(vector_weight=0.5, feedback_chunks=1, feedback_weight=1.0)
    assert ids(fuse(found, off, query=(1.0, 0.0))) == [1, 3, 2]
    assert ids(fuse(found, on, query=(1.0, 0.0))) == [1, 2, 3]


def test_vectors_weigh_less_when_chunks_are_longer_than_a_window() -> None:
    config = FusionConfig(vector_weight=0.6, window_chars=100)
    assert vector_weight([chunk("x" * 80)], config) == 0.6
    assert vector_weight([chunk("x" * 200)], config) == pytest.approx(0.075)


@pytest.mark.parametrize(
    "wrong",
    [{"vector_weight": 1.5}, {"window_chars": 0}, {"feedback_chunks": -1}, {"feedback_weight": -1}],
)
def test_impossible_settings_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must"):
        FusionConfig(**wrong)  # type: ignore[arg-type]
