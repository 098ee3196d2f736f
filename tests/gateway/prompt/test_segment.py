from hypothesis import given
from hypothesis import strategies as st

from gateway.asks import Turn
from gateway.prompt.segment import SourceKind, segment, split_text
from ingest.api import InlineDocument, StoredText

BODY = "\n\n".join(f"Paragraph {i} of the agreement." for i in range(20))


def parts(text: str, least: int = 100) -> tuple[str, str, str] | None:
    split = split_text(text, least)
    if split is None:
        return None
    return text[: split.start], text[split.start : split.stop], text[split.stop :]


def test_the_closing_paragraph_is_the_question() -> None:
    assert parts(f"{BODY}\n\nWho signed?") == ("", BODY, "\n\nWho signed?")


def test_an_opening_line_that_asks_stays_with_the_question() -> None:
    found = parts(f"Who signed this?\n\n{BODY}\n\nAnswer briefly.")
    assert found == ("Who signed this?\n\n", BODY, "\n\nAnswer briefly.")


def test_a_paragraph_that_introduces_the_last_one_belongs_to_the_question() -> None:
    found = parts(f"{BODY}\n\nQuestion:\n\nWho signed?")
    assert found is not None
    assert found[2] == "\n\nQuestion:\n\nWho signed?"


def test_a_text_without_paragraphs_is_split_at_its_last_line_or_sentence() -> None:
    lines = "\n".join(["a line of text"] * 20)
    assert parts(f"{lines}\nWho signed?") == ("", lines, "\nWho signed?")
    sentences = "This is a sentence. " * 20
    assert parts(f"{sentences}Who signed?") == ("", sentences.strip(), " Who signed?")


def test_short_and_unbroken_texts_have_no_context() -> None:
    assert parts("Who signed?") is None
    assert parts("x" * 5000) is None


@given(st.text(st.sampled_from("ab .?:\n"), max_size=300), st.integers(1, 50))
def test_a_split_lies_in_order_and_leaves_a_question(text: str, least: int) -> None:
    split = split_text(text, least)
    if split is not None:
        assert 0 <= split.start < split.stop <= len(text)
        assert split.stop - split.start >= least
        assert text[split.stop :].strip()
        assert text[split.start : split.stop].strip() == text[split.start : split.stop]


def test_files_and_documents_come_before_the_question_and_a_file_only_once() -> None:
    turns = [
        Turn(role="system", text="Be brief."),
        Turn(role="user", text="Read this.", file_ids=("f1",)),
        Turn(role="assistant", text="Done."),
        Turn(role="user", text=f"{BODY}\n\nWho signed?", file_ids=("f1", "f2")),
    ]
    files = {name: StoredText(name, f"{name}.txt", f"text of {name}") for name in ("f1", "f2")}
    found = segment(turns, files, [InlineDocument("d", "doc")], least_context_chars=100)
    kinds = [(one.kind, one.id) for one in found.sources]
    assert kinds == [
        (SourceKind.FILE, "f1"),
        (SourceKind.FILE, "f2"),
        (SourceKind.DOCUMENT, "d"),
        (SourceKind.PROMPT, "prompt"),
    ]
    assert [one.attached for one in found.turns] == [(), (0,), (), (1, 2)]
    assert found.turns[3].inline == 3
    assert found.question == "Who signed?"


def test_an_inline_sources_offsets_count_in_its_messages_text() -> None:
    text = f"  \n{BODY}\n\nWho signed?"
    [source] = segment([Turn(role="user", text=text)], {}, [], least_context_chars=100).sources
    assert text[source.base : source.base + len(source.text)] == source.text
