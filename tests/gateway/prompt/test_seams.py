"""Texts with seams, split by a plain expression, against the original one with its look-ahead."""

from functools import cache

import pytest
import tiktoken
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.prompt.expressions import AFTER_DIGITS, BYTE_LEVEL
from gateway.prompt.fast_bpe import SEAM, Marked
from gateway.prompt.openai_encodings import CL100K
from gateway.prompt.seams import Seams
from tests.gateway.prompt.test_fast_bpe import bundled

PATTERNS = {
    "byte level": BYTE_LEVEL,
    "digits": AFTER_DIGITS % r"\p{N}",
    "digit runs": AFTER_DIGITS % r"\p{N}+",
    "cl100k": CL100K,
}
TEXTS = st.lists(
    st.sampled_from([" ", "  ", "\n", "\n\n", "\r\n", "\t", "\v", "a", "the", "1", ".", "'s"])
    | st.sampled_from(["é", "東", "\u00a0", "\u2003", "²", "\x1c", SEAM]),
    max_size=40,
).map("".join)


@cache
def encodings(name: str) -> tuple[tiktoken.Encoding, Marked]:
    fast = bundled().fast
    assert fast is not None
    ranks = dict(fast.encoding._mergeable_ranks)
    original = tiktoken.Encoding(
        "original", pat_str=PATTERNS[name], mergeable_ranks=ranks, special_tokens={}
    )
    marked = Marked.of(PATTERNS[name], ranks)
    assert marked is not None
    return original, marked


@pytest.mark.parametrize("name", PATTERNS)
@given(text=TEXTS)
@settings(max_examples=300)
def test_a_marked_text_has_the_ids_of_the_original_expression(name: str, text: str) -> None:
    original, marked = encodings(name)
    found = marked.encode(text, text.encode())
    if found is None:
        assert not text.isascii()
        return
    assert list(found) == original.encode_ordinary(text)


def test_most_texts_need_no_look_ahead() -> None:
    _, marked = encodings("digits")
    for text in ("One.\n\n  Two 2\t\t3 four", "Käse\n\nist  gut", "a  b", "\n\n", ""):
        assert marked.encode(text, text.encode()) is not None
    assert marked.encode("a  é", "a  é".encode()) is None


@pytest.mark.parametrize("pattern", [r"\w+|\s+", r"(?=a)b|\s+(?!\S)|\s+"])
def test_another_expression_stays_as_it_is(pattern: str) -> None:
    assert Seams.of(pattern) is None
