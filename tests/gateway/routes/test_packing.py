from hypothesis import given
from hypothesis import strategies as st

from gateway.prompt.segment import Source, SourceKind
from gateway.routes.packing import Found, PackBudget, pack
from tests.gateway.fakes import ids_of, model_text

WORDS = st.lists(st.sampled_from(["the", "fox", "lease", "Käse", "\n", "12"]), min_size=1)


def found(text: str, offset: int, focus: int = 0) -> Found:
    source = Source(kind=SourceKind.DOCUMENT, id="d", name="d.txt", text="x" * offset + text)
    at = offset + focus
    return Found(source, offset, text, 0.5, at, at + 1)


@given(st.lists(st.tuples(WORDS.map(" ".join), st.integers(0, 9)), max_size=5), st.integers(0, 90))
def test_what_is_packed_fits_and_stands_where_it_says(
    texts: list[tuple[str, int]], num_tokens: int
) -> None:
    budget = PackBudget(total_tokens=num_tokens, passage_tokens=max(1, num_tokens // 2))
    packed = pack([found(*one) for one in texts], budget, "", model_text().encoder)
    assert packed.passage_tokens <= num_tokens
    assert packed.passage_tokens == sum(len(ids_of(one.text)) for one in packed.readings)
    for one in packed.readings:
        assert one.source.text[one.start : one.stop] == one.text
        assert one.text in packed.text


def test_passages_are_numbered_and_named_after_the_instruction() -> None:
    budget = PackBudget(total_tokens=100, passage_tokens=100)
    passages = [found("the fox", 0), found("the dog", 3)]
    packed = pack(passages, budget, "Read.", model_text().encoder)
    assert packed.text == "Read.\n\n[1] d.txt\nthe fox\n\n[2] d.txt\nthe dog"
    assert [one.number for one in packed.readings] == [1, 2]


def test_a_long_passage_is_read_around_what_was_found() -> None:
    text = "the fox " * 100 + "lease " + "the dog " * 100
    focus = text.index("lease")
    budget = PackBudget(total_tokens=60, passage_tokens=60)
    [reading] = pack([found(text, 5, focus)], budget, "", model_text().encoder).readings
    assert "lease" in reading.text
    assert len(ids_of(reading.text)) <= 60
