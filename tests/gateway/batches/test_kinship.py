"""Which lines share a beginning, and in which order lines run."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from gateway.batches.api import BatchLine
from gateway.batches.kinship import beginnings, kinships
from gateway.batches.waves import waves_of

LEASE = "The lease of the lighthouse. " * 400
RECIPE = "Bread needs an hour in the oven. " * 400


def chat(*texts: str, **fields: object) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": text} for text in texts], **fields}


def kin(*bodies: dict[str, object]) -> list[str]:
    return kinships([beginnings(body) for body in bodies])


def test_lines_that_begin_with_one_document_are_kin_and_others_are_not() -> None:
    a, b, c, d, e = kin(
        chat(LEASE + "Who?"),
        chat(RECIPE + "How long?"),
        chat(LEASE + "When?"),
        chat("Short."),
        chat(RECIPE + "How hot?"),
    )
    assert a == c != b == e
    assert a
    assert b
    assert d == ""


def test_under_one_long_system_prompt_the_documents_decide() -> None:
    system = "You answer from the file only. " * 100
    bodies = [chat(system, text + question) for text in (LEASE, RECIPE) for question in "ab"]
    a, b, c, d = kin(*bodies)
    assert a == b != c == d


def test_an_attached_file_makes_kin_however_short_its_id_is() -> None:
    def with_file(file_id: str, question: str) -> dict[str, object]:
        part = {"type": "file", "file": {"file_id": file_id}}
        text = {"type": "text", "text": question}
        return {"messages": [{"role": "user", "content": [part, text]}]}

    a, b, c = kin(with_file("f1", "x"), with_file("f1", "y"), with_file("f2", "x"))
    assert a == b != ""
    assert c == ""


def test_a_part_that_goes_on_is_kin_to_the_same_words_in_one_string() -> None:
    parts = [{"type": "input_text", "text": LEASE}, {"type": "input_text", "text": "Who?"}]
    a, b = kin({"input": [{"role": "user", "content": parts}]}, {"input": LEASE + "When?"})
    assert a == b != ""


def test_documents_beside_the_messages_are_read_first() -> None:
    documents = [{"id": "a", "text": LEASE}]
    a, b = kin(chat("Who?", documents=documents), chat("When?", documents=documents))
    assert a == b != ""


@given(st.lists(st.sampled_from(["", "a", "b", "c"]), max_size=30))
def test_waves_hold_every_line_once_and_no_family_starts_before_its_first(
    kinds: Sequence[str],
) -> None:
    lines = [
        BatchLine(number=i, custom_id=str(i), start=0, stop=0, kinship=kind)
        for i, kind in enumerate(kinds)
    ]
    waves = list(waves_of(lines))
    assert sorted(line.number for wave in waves for line in wave) == list(range(len(kinds)))
    seen: set[str] = set()
    for wave in waves:
        families = {line.kinship for line in wave}
        assert len(families) == 1
        [family] = families
        if family and family not in seen:
            assert len(wave) == 1
            assert wave[0].number == kinds.index(family)
        seen.add(family)
