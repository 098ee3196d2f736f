"""What a search of a vector store lets out."""

from ingest.library_stores import merged
from ingest.stores_api import StoreSearch
from ingest.stores_ledger import Shown
from retrieval.api import Comparator, Comparison, Passage, SearchResult


def passage(document_id: str, start: int, stop: int, score: float) -> Passage:
    return Passage(
        document_id=document_id,
        start=start,
        stop=stop,
        text="x" * (stop - start),
        score=score,
        focus_start=start,
        focus_stop=stop,
    )


def result(*passages: Passage, evidence: float = 0.5) -> SearchResult:
    return SearchResult(passages=passages, evidence=evidence, num_searched=9, seconds=0.0)


def kept(found: list[SearchResult], search: StoreSearch) -> list[tuple[str, int]]:
    shown = {"a": Shown("a.txt", {"year": 1911}), "b": Shown("b.txt", {})}
    hits = merged(found, shown, search).hits
    return [(hit.passage.document_id, hit.passage.start) for hit in hits]


def test_a_file_that_went_while_it_was_searched_is_not_let_out() -> None:
    found = merged([result(passage("gone", 0, 5, 0.9))], {}, StoreSearch(queries=["q"]))
    assert (list(found.hits), found.evidence) == ([], 0.0)


def test_of_passages_that_overlap_the_better_is_let_out() -> None:
    one = result(passage("a", 0, 10, 0.5), passage("b", 0, 10, 0.4))
    other = result(passage("a", 9, 20, 0.8), passage("a", 20, 30, 0.1))
    assert kept([one, other], StoreSearch(queries=["q", "r"])) == [("a", 9), ("b", 0), ("a", 20)]


def test_threshold_filter_and_number_are_held_to() -> None:
    found = [
        result(*(passage(name, 10 * n, 10 * n + 5, n / 10) for name in "ab" for n in (1, 5, 9)))
    ]
    assert len(kept(found, StoreSearch(queries=["q"], top_k=3))) == 3
    assert kept(found, StoreSearch(queries=["q"], score_threshold=0.9)) == [("a", 90), ("b", 90)]
    is_old = Comparison("year", Comparator.LT, 1990.0)
    assert {name for name, _ in kept(found, StoreSearch(queries=["q"], filter=is_old))} == {"a"}
