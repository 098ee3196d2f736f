from hypothesis import given
from hypothesis import strategies as st

from gateway.prompt.detokenize import StopScanner, byte_alphabet
from tests.gateway.fakes import SPECIALS, id_of, ids_of, model_text, trained


@given(st.text(max_size=60))
def test_streamed_text_equals_the_whole(text: str) -> None:
    detokenizer = model_text().detokenizer()
    pieces = [detokenizer.push(i) for i in model_text().encoder.encode(text).ids]
    assert "".join(pieces) + detokenizer.flush() == text
    assert not any("\ufffd" in piece for piece in pieces if "\ufffd" not in text)


@given(st.lists(st.integers(0, trained().get_vocab_size() - 1), max_size=30))
def test_any_ids_stream_to_what_they_decode_to(ids: list[int]) -> None:
    detokenizer = model_text().detokenizer()
    streamed = "".join(detokenizer.push(i) for i in ids) + detokenizer.flush()
    assert streamed == trained().decode(ids, skip_special_tokens=True)


def test_an_answer_that_ends_inside_a_character_ends_with_a_replacement() -> None:
    detokenizer = model_text().detokenizer()
    ids = [i for byte in "👩".encode()[:3] for i in ids_of_byte(byte)]
    assert [detokenizer.push(i) for i in ids] == ["", "", ""]
    assert detokenizer.flush() == "\ufffd"


def test_special_tokens_are_not_said() -> None:
    detokenizer = model_text().detokenizer()
    assert detokenizer.push(id_of(SPECIALS[0])) == ""
    assert detokenizer.flush() == ""


def ids_of_byte(byte: int) -> list[int]:
    letter = next(char for char, value in byte_alphabet().items() if value == byte)
    return [id_of(letter)]


PIECES = st.lists(st.text("ab\n", max_size=4), max_size=12)
STOPS = st.lists(st.text("ab\n", min_size=1, max_size=4), min_size=1, max_size=4)


@given(PIECES, STOPS)
def test_scanning_pieces_equals_cutting_the_whole(pieces: list[str], stops: list[str]) -> None:
    scanner = StopScanner(stops)
    sent = ""
    seen = ""
    for piece in pieces:
        seen += piece
        sent += scanner.push(piece)
        if scanner.stopped:
            break
    sent += scanner.flush()
    cuts = [at for stop in stops if (at := seen.find(stop)) >= 0]
    assert scanner.stopped == bool(cuts)
    assert sent == (seen[: min(cuts)] if cuts else seen)


def test_what_might_begin_a_stop_is_held_back() -> None:
    scanner = StopScanner(["END"])
    assert scanner.push("the E") == "the "
    assert scanner.push("N") == ""
    assert scanner.push("tropy") == "ENtropy"


def test_a_token_is_spelled_as_its_bytes() -> None:
    speller = model_text().speller
    assert speller.spell(ids_of("fox")[0])[1] == list(speller.spell(ids_of("fox")[0])[0].encode())
    [half] = ids_of_byte(0xF0)
    assert speller.spell(half) == ("\ufffd", [0xF0])
