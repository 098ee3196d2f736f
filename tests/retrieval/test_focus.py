from retrieval.analyzer import analyze
from retrieval.api import Passage
from retrieval.focus import focused


def passage(text: str) -> Passage:
    return Passage(
        document_id="d",
        start=100,
        stop=100 + len(text),
        text=text,
        score=0.5,
        focus_start=103,
        focus_stop=105,
    )


def focus_text(text: str, query: str) -> str:
    found = focused(passage(text), analyze(query))
    return text[found.focus_start - 100 : found.focus_stop - 100]


LINES = "Item 1: the lease of the yard ends soon\nItem 2: the Elm Basin lease\nItem 3: the lease"


def test_the_focus_is_the_line_that_shares_the_rarest_words() -> None:
    assert focus_text(LINES, "When does the Elm Basin lease end?") == "Item 2: the Elm Basin lease"


def test_words_are_compared_as_the_analyzer_sees_them() -> None:
    assert focus_text("It rained.\nThe witnesses signed.", "witness signing") == (
        "The witnesses signed."
    )


def test_without_a_shared_word_the_focus_stays_on_what_was_found() -> None:
    found = focused(passage("Nothing of the kind.\n\nReally."), analyze("lighthouse"))

    assert (found.focus_start, found.focus_stop) == (103, 105)


def test_an_empty_passage_keeps_its_focus() -> None:
    assert focused(passage(""), ["lease"]) == passage("")
