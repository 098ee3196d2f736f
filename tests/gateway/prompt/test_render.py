from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.asks import Turn
from gateway.prompt.render import Prompt, locate, render_packed, render_whole
from gateway.prompt.segment import Segmented, segment
from ingest.api import InlineDocument, StoredText
from tests.gateway.fakes import id_of, model_text, paragraphs, trained

LONG = paragraphs(["The fact is here."], 60)


def decoded(ids: object) -> str:
    return str(trained().decode(list(ids), skip_special_tokens=False))  # type: ignore[call-overload]


def scene(text: str, documents: dict[str, str], files: dict[str, str]) -> Segmented:
    turn = Turn(role="user", text=text, file_ids=tuple(files))
    stored = {name: StoredText(name, f"{name}.txt", body) for name, body in files.items()}
    given_documents = [InlineDocument(name, body) for name, body in documents.items()]
    return segment([turn], stored, given_documents, least_context_chars=500)


def test_a_prompt_with_documents_reads_as_headings_texts_and_the_question() -> None:
    segmented = scene("Who signed?", {"d": "Doc text."}, {"f": "File text."})
    prompt = render_whole(segmented, model_text())
    assert decoded(prompt.ids) == (
        "<|im_start|>user\nDocument 1: f.txt\n\nFile text.\n\nDocument 2: d\n\nDoc text.\n\n"
        "Who signed?<|im_end|>\n<|im_start|>assistant\n"
    )


def test_the_question_starts_where_it_says_also_inside_a_long_message() -> None:
    prompt = render_whole(scene(f"{LONG}\n\nWho signed?", {}, {}), model_text())
    tail = decoded(prompt.ids[prompt.question_start :])
    assert tail == "\n\nWho signed?<|im_end|>\n<|im_start|>assistant\n"


def test_a_chat_without_any_user_has_a_question_too() -> None:
    segmented = segment([Turn(role="system", text="Hi")], {}, [], least_context_chars=500)
    prompt = render_whole(segmented, model_text())
    assert decoded(prompt.ids[prompt.question_start :]).startswith("Hi<|im_end|>")


@given(st.lists(st.text(min_size=1, max_size=80), min_size=1, max_size=4))
@settings(max_examples=60)
def test_every_documents_tokens_hold_its_text(texts: list[str]) -> None:
    documents = {f"d{i}": text for i, text in enumerate(texts)}
    prompt = render_whole(scene("Who?", documents, {}), model_text())
    assert [one.source.text for one in prompt.placed] == texts
    for one in prompt.placed:
        assert one.source.text in decoded(prompt.ids[one.token_start : one.token_stop])
        assert one.token_stop <= prompt.question_start


def test_token_spans_map_back_to_the_characters_they_hold() -> None:
    prompt = render_whole(scene("Who?", {"a": LONG, "b": "Second text, short."}, {}), model_text())
    first = prompt.placed[0]
    middle = first.token_start + 100
    [excerpt] = locate(prompt, middle, middle + 20, model_text())
    assert excerpt.source.id == "a"
    assert excerpt.source.text[excerpt.start : excerpt.stop] == decoded(
        prompt.ids[middle : middle + 20]
    )
    both = locate(prompt, 0, len(prompt.ids), model_text())
    assert [(one.source.id, one.start, one.stop) for one in both] == [
        ("a", 0, len(LONG)),
        ("b", 0, 19),
    ]


def test_special_tokens_in_a_document_are_data() -> None:
    prompt = render_whole(scene("Who?", {"d": "x<|im_end|>y"}, {}), model_text())
    end = id_of("<|im_end|>")
    assert list(prompt.ids).count(end) == 1
    assert "x<|im_end|>y" in decoded(prompt.ids)


def test_a_packed_prompt_has_the_passages_and_not_the_context() -> None:
    segmented = scene(f"{LONG}\n\nWho signed?", {"d": "Doc text."}, {})
    prompt: Prompt = render_packed(segmented, "[1] d\nDoc", model_text())
    assert decoded(prompt.ids) == (
        "<|im_start|>user\n[1] d\nDoc\n\nWho signed?<|im_end|>\n<|im_start|>assistant\n"
    )
    assert decoded(prompt.ids[prompt.question_start :]).startswith("Who signed?")
