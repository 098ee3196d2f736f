"""Dice, grammar, ledger, page, planter and counters, each by itself."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from ingest.synth.dice import Dice
from ingest.synth.facts import Planting, Role
from ingest.synth.grammar import Grammar, Writer
from ingest.synth.layout import DocumentFormat, Page, heading, line, paragraph
from ingest.synth.scene import Planter
from ingest.synth.tokens import EstimateCounter, TokenizerCounter
from ingest.synth.values import Ledger


def planting(sentence: str) -> Planting:
    return Planting(fact=0, role=Role.ANSWER, sentence=sentence)


def test_a_seed_and_label_fix_the_draws() -> None:
    dice = Dice(7, "cast")
    assert [dice.below(1000) for _ in range(5)] == [665, 615, 671, 663, 836]
    other = Dice(7, "depths")
    assert [other.below(1000) for _ in range(5)] != [665, 615, 671, 663, 836]


@given(seed=st.integers(), items=st.lists(st.integers(), max_size=30))
def test_shuffling_keeps_every_item(seed: int, items: list[int]) -> None:
    assert sorted(Dice(seed, "x").shuffled(items)) == sorted(items)


@given(seed=st.integers(), first=st.integers(-5, 5), length=st.integers(0, 9))
def test_between_stays_between(seed: int, first: int, length: int) -> None:
    assert first <= Dice(seed, "x").between(first, first + length) <= first + length


def test_a_grammar_fills_slots_from_rules_and_live_names() -> None:
    grammar = Grammar(({"s": ("{who} saw {thing}.",), "thing": ("the crate",)},), live=("who",))
    writer = Writer(grammar=grammar, dice=Dice(1, "x"), live={"who": lambda: "Ada"})
    assert writer.say("s") == "Ada saw the crate."


def test_a_paragraph_uses_no_template_twice() -> None:
    grammar = Grammar(({"s": ("a.", "b.", "c.")},), live=())
    writer = Writer(grammar=grammar, dice=Dice(1, "x"), live={})
    assert sorted(writer.say_some("s", 5).split()) == ["A.", "B.", "C."]


def test_a_grammar_with_an_unknown_slot_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown slot 'nobody'"):
        Grammar(({"s": ("{nobody}",)},), live=())


def test_a_rule_defined_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="defined twice"):
        Grammar(({"s": ("a",)}, {"s": ("b",)}), live=())


def test_a_writer_without_a_source_for_a_live_name_is_refused() -> None:
    with pytest.raises(ValueError, match="who"):
        Writer(grammar=Grammar((), live=("who",)), dice=Dice(1, "x"), live={})


def test_a_reserved_value_is_never_drawn_again() -> None:
    ledger = Ledger()
    draws = iter(["a", "a", "b", "a", "b", "c"])
    assert ledger.reserve(lambda: next(draws)) == "a"
    assert ledger.reserve(lambda: next(draws)) == "b"
    assert ledger.free(lambda: next(draws)) == "c"


def test_a_planter_hands_out_in_order_and_not_before_its_time() -> None:
    first, second = planting("one"), planting("two")
    planter = Planter([(10.0, first), (20.0, second)])
    assert planter.take() is None
    planter.advance(line("x"), 15)
    assert planter.take() is first
    assert planter.take() is None
    planter.advance(line("x"), 5)
    assert planter.take() is second
    assert not planter.is_done
    planter.advance(line("two", second), 1)
    assert planter.is_done


@pytest.mark.parametrize(
    ("document_format", "expected"),
    [
        (DocumentFormat.TXT, "1. Terms\n\n01 Q. A & B?\n02 A. It is 7.\n"),
        (DocumentFormat.MD, "## 1. Terms\n\n01 Q. A & B?\n\n02 A. It is 7.\n"),
    ],
)
def test_a_page_lays_out_lines_and_knows_its_spans(
    document_format: DocumentFormat, expected: str
) -> None:
    page = Page(document_format, name="x")
    page.add(heading("1. Terms"))
    page.add(line("01 Q. A & B?"))
    page.add(line("02 A. It is 7.", planting("It is 7.")))
    text = page.finish()
    assert text == expected
    (span,) = page.spans
    assert text[span.start : span.stop] == "It is 7."


def test_html_is_escaped_and_its_spans_count_the_marks() -> None:
    page = Page(DocumentFormat.HTML, name="a<b")
    page.add(paragraph("A & B. It is 7.", planting("It is 7.")))
    text = page.finish()
    assert "<title>a&lt;b</title>" in text
    assert "<p>A &amp; B. It is 7.</p>" in text
    assert text[page.spans[0].start : page.spans[0].stop] == "It is 7."


def test_an_estimate_says_that_it_is_one() -> None:
    counter = EstimateCounter()
    assert counter.count("x" * 3_800) == 1_000
    assert not counter.is_exact


def test_a_tokenizer_file_counts_exactly(tmp_path: Path) -> None:
    tokenizer = Tokenizer(WordLevel({"a": 0, "?": 1}, unk_token="?"))
    tokenizer.pre_tokenizer = Whitespace()
    path = tmp_path / "tokenizer.json"
    tokenizer.save(str(path))
    counter = TokenizerCounter.load(path)
    assert counter.count("a b a a") == 4
    assert counter.is_exact
    assert "sha256" in counter.method


def test_a_file_that_is_no_tokenizer_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text("{}")
    with pytest.raises(ValueError, match="not a tokenizer"):
        TokenizerCounter.load(path)
