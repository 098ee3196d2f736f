"""Passages: exact, disjoint, joined, best first."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from retrieval.api import Chunk
from retrieval.config import PassageConfig
from retrieval.fusion import FusedHit
from retrieval.passages import build_passages, shortlist
from tests.retrieval.chunks import chunk

TEXT = "".join(chr(ord("a") + place % 26) for place in range(400))
SPANS = st.tuples(st.integers(0, 380), st.integers(1, 60), st.integers(0, 50), st.integers(0, 50))


def hit(start: int, stop: int, score: float, parent: tuple[int, int] | None = None) -> FusedHit:
    found = chunk(TEXT[start:stop], start=start, parent=parent)
    return FusedHit(chunk=found, score=score, lexical=None, similarity=None)


def spans(
    hits: list[FusedHit], top_k: int = 8, config: PassageConfig | None = None
) -> list[tuple[int, int]]:
    found = build_passages(hits, {"doc": TEXT}, top_k, config or PassageConfig())
    return [(passage.start, passage.stop) for passage in found]


@given(
    places=st.lists(SPANS, max_size=12),
    top_k=st.integers(1, 8),
    max_chars=st.integers(20, 200),
    gap=st.integers(0, 10),
)
def test_passages_are_exact_disjoint_and_best_first(
    places: list[tuple[int, int, int, int]], top_k: int, max_chars: int, gap: int
) -> None:
    hits = [
        hit(
            start,
            min(start + length, len(TEXT)),
            1 - number / 100,
            (start - before, start + length + after),
        )
        for number, (start, length, before, after) in enumerate(places)
    ]
    config = PassageConfig(max_passage_chars=max_chars, join_gap_chars=gap)
    found = build_passages(hits, {"doc": TEXT}, top_k, config)
    assert len(found) <= top_k
    assert bool(found) == bool(places)
    assert all(one.text == TEXT[one.start : one.stop] and one.text for one in found)
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
    ordered = sorted((one.start, one.stop) for one in found)
    assert all(stop <= start for (_, stop), (start, _) in pairwise(ordered))
    if hits:
        best = hits[0].chunk
        assert any(one.start <= best.start < one.stop for one in found)


def test_the_parent_is_read() -> None:
    assert spans([hit(50, 60, 0.9, (40, 90))]) == [(40, 90)]


def test_a_second_chunk_of_one_parent_adds_nothing() -> None:
    assert spans([hit(50, 60, 0.9, (40, 90)), hit(70, 80, 0.8, (40, 90))]) == [(40, 90)]


def test_neighbours_are_joined_and_score_as_the_better() -> None:
    found = build_passages(
        [hit(200, 240, 0.9), hit(0, 40, 0.8), hit(40, 80, 0.7)], {"doc": TEXT}, 8, PassageConfig()
    )
    assert [(one.start, one.stop, one.score) for one in found] == [(200, 240, 0.9), (0, 80, 0.8)]


def test_a_paragraph_break_between_neighbours_is_bridged() -> None:
    assert spans([hit(0, 40, 0.9), hit(42, 80, 0.8)]) == [(0, 80)]
    assert spans([hit(0, 40, 0.9), hit(43, 80, 0.8)]) == [(0, 40), (43, 80)]


def test_joining_stops_at_the_longest_passage() -> None:
    config = PassageConfig(max_passage_chars=60)
    assert spans([hit(0, 40, 0.9), hit(40, 80, 0.8)], config=config) == [(0, 40), (40, 80)]


def test_a_mostly_known_chunk_is_dropped_and_a_mostly_new_one_is_trimmed() -> None:
    assert spans([hit(0, 100, 0.9), hit(50, 150, 0.8)]) == [(0, 100)]
    config = PassageConfig(max_passage_chars=100)
    assert spans([hit(0, 100, 0.9), hit(80, 180, 0.8)], config=config) == [(0, 100), (100, 180)]


def test_parents_end_where_the_text_does() -> None:
    assert spans([hit(390, 400, 0.9, (380, 900))]) == [(380, 400)]


def test_a_passage_remembers_where_its_best_chunk_lies() -> None:
    hits = [hit(60, 80, 0.4, (50, 100)), hit(110, 120, 0.9, (100, 150))]
    [joined] = build_passages(hits, {"doc": TEXT}, 8, PassageConfig())

    assert (joined.start, joined.stop) == (50, 150)
    assert (joined.focus_start, joined.focus_stop) == (110, 120)


def test_the_best_of_each_side_is_on_the_short_list() -> None:
    scored = [(0.9, 1.0, 0.2), (0.8, 2.0, 0.3), (0.7, 1.5, 0.9), (0.6, 9.0, None), (0.5, 3.0, 0.1)]
    hits = [
        FusedHit(chunk=chunk(TEXT[i : i + 9], start=i), score=a, lexical=b, similarity=c)
        for i, (a, b, c) in enumerate(scored)
    ]

    assert [hit.score for hit in shortlist(hits, 3)] == [0.9, 0.7, 0.6, 0.8, 0.5]
    assert [hit.score for hit in shortlist(hits, 5)] == [0.9, 0.8, 0.7, 0.6, 0.5]
    assert shortlist([], 3) == []


def test_only_so_many_passages() -> None:
    hits = [hit(start, start + 10, 1 - start / 1000) for start in range(0, 200, 50)]
    assert spans(hits, top_k=2) == [(0, 10), (50, 60)]


def stale(wrong: Chunk) -> FusedHit:
    return FusedHit(chunk=wrong, score=0.9, lexical=None, similarity=None)


def test_a_chunk_that_the_text_no_longer_holds_is_left_out() -> None:
    assert spans([stale(chunk("not what it says", start=10)), hit(0, 5, 0.1)]) == [(0, 5)]


def test_a_document_without_text_is_left_out() -> None:
    assert spans([stale(chunk("abc", document_id="deleted"))]) == []
