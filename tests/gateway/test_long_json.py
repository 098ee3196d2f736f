import json
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.api import InvalidRequest
from gateway.long_json import LONG_BYTES, ObjectReader

CHARS = st.sampled_from(
    ["a", "\\", '"', "\n", "\x00", "\x7f", "é", "東", "\ufeff", "👩", "\U0010ffff", "\ue000", "u12"]
)
LONG = st.lists(CHARS, min_size=1, max_size=12).map(
    lambda chars: "".join(chars) * (1 + LONG_BYTES // len(chars))
)
VALUES = st.recursive(
    st.none() | st.integers() | st.text() | LONG,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=6,
)


def read(raw: bytes, cuts: list[int]) -> dict[str, object]:
    reader = ObjectReader()
    borders = sorted({0, len(raw), *(cut % (len(raw) + 1) for cut in cuts)})
    for start, stop in pairwise(borders):
        reader.feed(raw[start:stop])
    return reader.finish()


@given(
    st.dictionaries(st.text() | LONG, VALUES, max_size=4),
    st.lists(st.integers(0, 2**20), max_size=30),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
@example({"": '"' * LONG_BYTES * 2, "\\": "\\" * LONG_BYTES * 2}, list(range(0, 80_000, 997)), True)
def test_an_object_is_the_same_however_its_bytes_are_cut(
    body: dict[str, object], cuts: list[int], escaped: bool
) -> None:
    raw = json.dumps(body, ensure_ascii=escaped).encode()
    assert read(raw, cuts) == body


@pytest.mark.parametrize("length", [0, 2 * LONG_BYTES])
@pytest.mark.parametrize("escape", ["\\ud800", "\\udc00", "\\ud800\\ud800", "\\ud83dx", "\\uDBFF"])
def test_an_unpaired_surrogate_is_said_to_be_one(escape: str, length: int) -> None:
    raw = f'{{"a": "{"x" * length}{escape}{"y" * length}"}}'.encode()
    with pytest.raises(InvalidRequest, match="unpaired surrogate"):
        read(raw, list(range(0, len(raw), 20_000)))


@pytest.mark.parametrize(
    "raw",
    [b"", b"[]", b'"a"', b"{", b'{"a": "b', b'{"a": 1,}', b'{"a": "\xff"}', b'{"a": "\\q"}']
    + [b'{"a": "' + b"x" * 40_000 + end for end in (b"", b'\\q"}', b'\xff"}', b'\n"}', b'\\u00"}')]
    + [b"[" * 100_000, b'{"a":' * 50_000],
)
def test_what_is_no_object_is_refused(raw: bytes) -> None:
    with pytest.raises(InvalidRequest, match="JSON body"):
        read(raw, list(range(0, len(raw), 20_000)))
