"""The compiled encoder against tiktoken with the same expression and vocabulary."""

import random
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import pytest
import tiktoken
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.prompt.borders import CANARIES
from gateway.prompt.compiled.kernel import MAX_PIECE_BYTES, _key
from gateway.prompt.compiled.kinds import CODE_POINTS, SURROGATES
from gateway.prompt.compiled.rules import KNOWN, Rules
from gateway.prompt.compiled.tables import CompiledBpe
from gateway.prompt.openai_encodings import CL100K
from tests.gateway.prompt.test_fast_bpe import bundled

EXPRESSIONS = sorted(KNOWN)
EVERY = pytest.mark.parametrize("expression", EXPRESSIONS, ids=map(str, range(len(EXPRESSIONS))))
ALPHABET = (
    *("a", "the", "The", " fox", "don't", "LL", "'", "'s", "'S", "'ll", "'Ll", "'Re", "'ve", "'v"),
    *(" ", "  ", "\t", "\n", "\r\n", "\n\n", "\v", "\f", "\x1c", "\x85", "\u00a0", "\u3000"),
    *("1", "12", "1234", "\u0663", "\u00bd", "\u2167", "é", "ñandú", "東京", "한", "\u0628"),
    *(".", "...", "?!", "--", "_", "$1", "👩\u200d👧", "\u017f", "\u212a", "\ufeff", "\u0301"),
    *("\x00", "\x04", "\U00020000", "\U000e0001", "\U0010fffd", "<|im_end|>", "overstated"),
)
TEXTS = st.lists(st.sampled_from(ALPHABET) | st.text(max_size=3), max_size=40).map("".join)


@cache
def ranks() -> dict[bytes, int]:
    fast = bundled().fast
    assert fast is not None
    return {token: index for index, token in fast.token_bytes.items()}


@cache
def encoders(expression: str) -> tuple[tiktoken.Encoding, CompiledBpe]:
    """The bundled vocabulary, its missing bytes added, split by another expression."""
    missing = [bytes((byte,)) for byte in range(256) if bytes((byte,)) not in ranks()]
    every = ranks() | {byte: 100_000 + i for i, byte in enumerate(missing)}
    oracle = tiktoken.Encoding(
        "oracle", pat_str=expression, mergeable_ranks=every, special_tokens={}
    )
    rules = Rules.of(expression)
    assert rules is not None
    compiled = CompiledBpe.build(rules, every)
    assert compiled is not None
    return oracle, compiled


def agrees(expression: str, text: str) -> bool:
    """Whether the kernel knew the text; if so its ids are right."""
    oracle, compiled = encoders(expression)
    ids = compiled.encode(text.encode())
    assert ids is None or list(ids) == oracle.encode_ordinary(text), ascii(text)
    return ids is not None


@EVERY
@given(text=TEXTS)
@settings(max_examples=250, deadline=None)
@example("'\u017f and '\u017fs")
@example("a \n\n b\n  \n")
def test_ids_are_those_of_the_expression(expression: str, text: str) -> None:
    agrees(expression, text)


@EVERY
def test_a_thousand_mixed_texts_have_the_ids_of_the_expression(expression: str) -> None:
    rng = random.Random(expression)
    known = 0
    for _ in range(1000):
        known += agrees(expression, "".join(rng.choices(ALPHABET, k=rng.randrange(60))))
    assert known > 100


@EVERY
def test_every_character_is_of_the_kind_that_the_expression_says(expression: str) -> None:
    step = 1024
    for start in range(0, CODE_POINTS, step):
        chars = [chr(point) for point in range(start, start + step) if point not in SURROGATES]
        agrees(expression, "".join(f"{char}{char}a {char}1 {char} " for char in chars))
        agrees(expression, "".join(f"{char}\n" for char in chars))


@EVERY
def test_plain_text_of_any_script_is_known(expression: str) -> None:
    for text in CANARIES[:5]:
        assert agrees(expression, text)


@pytest.mark.parametrize("char", ["a", "é", "東", " ", "\n", "=", "7", "'"])
def test_pieces_up_to_the_longest_are_exact_and_longer_ones_are_left_to_others(char: str) -> None:
    width = len(char.encode())
    for size in [*range(1, 80), MAX_PIECE_BYTES // width - 1]:
        assert agrees(CL100K, f"x {char * size}")
    longer = f"x{char * (MAX_PIECE_BYTES + 3)}y"
    assert agrees(CL100K, longer) is (char == "7")


def test_what_lies_behind_the_known_planes_is_left_to_others() -> None:
    assert agrees(CL100K, "a \U0003ffff")
    assert not agrees(CL100K, "a \U00040000")
    assert not agrees(CL100K, "it'\u017f")


def test_a_byte_without_a_token_is_left_to_others() -> None:
    rules = Rules.of(CL100K)
    assert rules is not None
    compiled = CompiledBpe.build(rules, {b"a": 0, b"ab": 1, b" ": 2})
    assert compiled is not None
    assert list(compiled.encode(b"ab a") or ()) == [1, 2, 0]
    assert compiled.encode(b"ab b") is None
    assert list(compiled.encode(b"") or ()) == []


def test_pieces_that_are_tokens_but_for_a_letter_are_no_tokens() -> None:
    rng = random.Random(5)
    letters = "abcdefgh"
    words = sorted({"".join(rng.choices(letters, k=rng.randrange(1, 20))) for _ in range(3000)})
    tokens = {one.encode(): i for i, one in enumerate({*letters, *words, " "})}
    rules = Rules.of(CL100K)
    assert rules is not None
    compiled = CompiledBpe.build(rules, tokens)
    oracle = tiktoken.Encoding("x", pat_str=CL100K, mergeable_ranks=tokens, special_tokens={})
    assert compiled is not None
    for word in words:
        for text in (word, f"{word}b", f"{word[:-1]}h"):
            assert list(compiled.encode(text.encode()) or ()) == oracle.encode_ordinary(text)


def test_a_piece_with_the_hash_of_a_token_is_not_that_token() -> None:
    token, alike = words_of_one_hash()
    letters = {bytes((byte,)): byte for byte in range(97, 123)}
    rules = Rules.of(CL100K)
    assert rules is not None
    compiled = CompiledBpe.build(rules, {**letters, token: 1000})
    assert compiled is not None
    assert list(compiled.encode(token) or ()) == [1000]
    assert list(compiled.encode(alike) or ()) == list(alike)


def words_of_one_hash() -> tuple[bytes, bytes]:
    """Two words of 16 letters. Their first halves are mixed, their second halves added as they
    are: two mixes that differ in the lower five bits of each byte only are made up for there."""
    rng = random.Random(1)
    seen: dict[int, tuple[bytes, int]] = {}
    while True:
        first = bytes(rng.choices(range(97, 123), k=8))
        mixed = key_of(first + bytes(8))
        other, mixed_other = seen.setdefault(mixed & 0xE0E0E0E0E0E0E0E0, (first, mixed))
        if other == first:
            continue
        apart = (mixed ^ mixed_other).to_bytes(8, "little")
        second = [[b for b in range(97, 123) if 97 <= b ^ bits < 123] for bits in apart]
        if all(second):
            last = bytes(choices[0] for choices in second)
            token = first + last
            alike = other + bytes(a ^ b for a, b in zip(last, apart, strict=True))
            assert key_of(token) == key_of(alike)
            return token, alike


def key_of(raw: bytes) -> int:
    return int(_key(np.frombuffer(raw, np.uint8), 0, len(raw))) & (2**64 - 1)


def test_what_is_remembered_of_pieces_is_right_when_they_come_again() -> None:
    rng = random.Random(3)
    words = ["".join(rng.choices("bcdfghjkaeiou", k=rng.randrange(5, 40))) for _ in range(3000)]
    for _ in range(3):
        rng.shuffle(words)
        assert agrees(CL100K, " ".join(words))


def test_threads_that_encode_at_once_have_each_their_own_ids() -> None:
    rng = random.Random(4)
    texts = [
        " ".join("".join(rng.choices("bcdfghjkl", k=9)) for _ in range(2000)) for _ in range(16)
    ]
    oracle, compiled = encoders(CL100K)
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda text: compiled.encode(text.encode()), texts * 4))
    for text, ids in zip(texts * 4, found, strict=True):
        assert list(ids or ()) == oracle.encode_ordinary(text)
    assert 1 <= len(compiled.memos) <= 9
