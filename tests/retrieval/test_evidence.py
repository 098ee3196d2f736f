"""Evidence: high for an answer, low for another subject, and ordered in between."""

from retrieval.analyzer import analyze
from retrieval.evidence import read_signals, weigh_evidence
from retrieval.fusion import FusedHit
from tests.retrieval.chunks import chunk

QUERY = analyze("Who signed the lease for the warehouse in Rotterdam?")
ANSWER = "The lease for the warehouse in Rotterdam was signed by Marta Vos."
OTHER = "Bees collect nectar from clover and lime trees in June."


def hit(text: str, start: int, lexical: float | None, similarity: float | None) -> FusedHit:
    return FusedHit(
        chunk=chunk(text, start=start), score=0.5, lexical=lexical, similarity=similarity
    )


def test_an_answer_that_both_sides_put_first_is_strong_evidence() -> None:
    hits = [hit(ANSWER, 0, 9.0, 0.7), hit(OTHER, 100, None, 0.1)]
    assert weigh_evidence(QUERY, hits) > 0.95


def test_another_subject_is_weak_evidence() -> None:
    hits = [hit(OTHER, 0, None, 0.1), hit(OTHER, 100, None, 0.05)]
    assert weigh_evidence(QUERY, hits) < 0.05


def test_the_words_without_the_meaning_are_in_between() -> None:
    words = "Warehouse. Lease. Rotterdam. Signed."
    assert 0.3 < weigh_evidence(QUERY, [hit(words, 0, 8.0, 0.15)]) < 0.95


def test_nothing_found_is_no_evidence() -> None:
    assert weigh_evidence(QUERY, []) == 0.0


def test_evidence_grows_with_each_signal() -> None:
    weak = weigh_evidence(QUERY, [hit(OTHER, 0, None, 0.3)])
    assert weigh_evidence(QUERY, [hit(OTHER, 0, None, 0.5)]) > weak
    assert weigh_evidence(QUERY, [hit(ANSWER, 0, None, 0.3)]) > weak
    assert weigh_evidence(QUERY, [hit(OTHER, 0, 1.0, 0.3)]) > weak


def test_a_query_of_no_terms_leaves_coverage_undecided() -> None:
    assert read_signals([], [hit(ANSWER, 0, None, 0.4)]).coverage == 0.5


def test_opposite_meanings_count_as_none() -> None:
    assert read_signals(QUERY, [hit(OTHER, 0, None, -0.4)]).similarity == 0.0
