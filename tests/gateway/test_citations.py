from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from gateway.citations import Reading, cite
from gateway.prompt.segment import Source, SourceKind

TEXT = (
    "The lease ends in March. Rent is due monthly.\n"
    "Anna Pavlova signed the agreement. Nobody else did."
)


def reading(number: int | None, start: int = 0, stop: int = len(TEXT), text: str = TEXT) -> Reading:
    source = Source(kind=SourceKind.DOCUMENT, id="d", name="d", text=text, base=100)
    return Reading(
        source=source, start=start, stop=stop, score=0.5, text=text[start:stop], number=number
    )


def test_a_marked_passage_is_cited_by_its_best_sentence() -> None:
    [citation] = cite("It was Anna Pavlova [1].", "Who signed?", [reading(1)])
    assert citation.quote == "Anna Pavlova signed the agreement."
    assert citation.start == 100 + TEXT.index("Anna")


def test_without_marks_the_supporting_sentence_is_found() -> None:
    quotes = [one.quote for one in cite("March.", "When does the lease end?", [reading(None)])]
    assert quotes == ["The lease ends in March."]


def test_a_mark_on_a_passage_that_supports_nothing_is_not_believed() -> None:
    other = reading(1, text="Unrelated words about weather. More about the sea.")
    [citation] = cite("Anna Pavlova [1]", "Who signed?", [other, reading(2)])
    assert citation.quote == "Anna Pavlova signed the agreement."


def test_an_answer_that_shares_nothing_has_no_citations() -> None:
    assert cite("Zzz.", "Who?", [reading(1)]) == ()
    assert cite("Anna", "Who?", []) == ()


def test_small_words_in_common_support_nothing() -> None:
    text = (
        "If a provision is found to be invalid, the rest of this agreement remains in force.\n"
        "Deposition of Tobias Wolcott, taken in March at the offices of Thornfield.\n"
        "The settlement sum for Odette Goldhaber is $558,450. Nothing else was paid.\n"
        "Both parties keep a copy. Rent falls due monthly. Keys are with the porter."
    )
    answer = "The melting point of tungsten carbide in Kelvin is approximately 14.5 Kelvin"
    question = "What is the melting point of tungsten carbide?"
    assert cite(answer, question, [reading(None, 0, len(text), text)]) == ()
    nearly = "The settlement sum for Odette Goldhaber is $55,845."
    [citation] = cite(nearly, "What is it?", [reading(None, 0, len(text), text)])
    assert citation.quote == "The settlement sum for Odette Goldhaber is $558,450."


def test_each_sentence_of_a_long_answer_can_be_supported() -> None:
    invented = " ".join(f"Invented claim {i} about zebras{i}." for i in range(12))
    quotes = [one.quote for one in cite(f"{invented} Rent is due monthly.", "?", [reading(None)])]
    assert quotes == ["Rent is due monthly."]


def test_a_quote_that_the_stored_text_does_not_hold_is_dropped() -> None:
    stale = reading(1)
    moved = replace(stale, source=replace(stale.source, text="x" + TEXT))
    assert cite("Anna Pavlova [1]", "Who signed?", [moved]) == ()


@given(st.text(max_size=200), st.text(max_size=60), st.data())
def test_every_quote_stands_where_it_says(text: str, answer: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text)))
    stop = data.draw(st.integers(start, len(text)))
    for citation in cite(answer + text[:20], "x", [reading(1, start, stop, text)]):
        assert text[citation.start - 100 : citation.stop - 100] == citation.quote
        assert start <= citation.start - 100 < citation.stop - 100 <= stop
