"""Tables and JSON become text to read: cells apart, letters instead of escapes."""

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.api import PermanentError
from ingest.parsing.parsed import Heading, ParseLimits
from ingest.parsing.structured import MAX_LINE_CHARS
from tests.ingest.parsing.office_files import CALM, read


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name,size\na,1\n", "name | size\na | 1"),
        ("name;size\na;1,5\n", "name | size\na | 1,5"),
        ("name\tsize\r\na\t1\r\n", "name | size\na | 1"),
        ("name|size\na|1\n", "name | size\na | 1"),
        ('name,size\n"a, ""b""\nc",1\n', 'name | size\na, "b" c | 1'),
        ("sep=|\nname|size\n", "name | size"),
        ("one column\nonly, once\n", "one column\nonly | once"),
        ('name,size\n"never closed,1\nb,2\n', "name | size\nnever closed,1 b,2"),
    ],
)
def test_delimiters_and_quotes_are_understood(text: str, expected: str) -> None:
    assert read(text.encode(), "t.csv").text == expected


def test_ragged_rows_are_read_and_told_and_columns_head_the_rows() -> None:
    parsed = read(b"name,size\na\n\nb,1,extra\n", "t.csv")
    assert parsed.text == "name | size\na\nb | 1 | extra"
    assert parsed.notes[1:] == ["Without the 2 cells of row 1, but read: rows 2, 3."]
    assert parsed.outline == [Heading(0, 1, "Columns: name, size")]
    assert read(b"1,2\n3,4\n", "t.csv").outline == []


def test_a_table_beyond_the_limit_is_refused() -> None:
    with pytest.raises(PermanentError, match="more than 100 characters"):
        read(b"abc,def\n" * 50, "t.csv", ParseLimits(max_chars=100))


def test_json_keeps_its_letters_order_and_numbers() -> None:
    raw = b'{"b": "\\u00e9\\ud83d\\ude00 \\u0041 \\ud800", "a": 1.50, "b": 2}'
    assert read(raw, "x.json").text == '{"b": "é😀 \\u0041 \\ud800", "a": 1.50, "b": 2}'


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
)


@settings(CALM, max_examples=50)
@given(VALUES)
def test_json_laid_out_anew_is_the_same_json(value: object) -> None:
    raw = json.dumps([value, "x" * MAX_LINE_CHARS]).encode()
    parsed = read(raw, "x.json")
    assert json.loads(parsed.text) == [value, "x" * MAX_LINE_CHARS]
    assert parsed.notes == [
        "Laid out anew, one value on a line: a line of the file is too long to read."
    ]


@pytest.mark.parametrize(
    ("raw", "filename", "note"),
    [
        (b'{"a": }', "x.json", "as JSON it is broken: .*byte 6"),
        (b'{"a": 1}\n{"a": }\n', "x.jsonl", "broken as JSON: line 2"),
        (b"[" * 100_000 + b"]" * 100_000, "x.json", "as JSON it is broken: it nests too deeply"),
    ],
)
def test_broken_json_is_read_as_it_is_and_told(raw: bytes, filename: str, note: str) -> None:
    parsed = read(raw, filename)
    assert parsed.text == raw.decode()
    assert any(re.search(note, each) for each in parsed.notes)


def test_definitions_of_code_are_its_outline() -> None:
    python = (
        b"class A(B):\n    async def f(self) -> int:\n        return 1\n\n\ndef g():\n    pass\n"
    )
    assert read(python, "a.py").outline == [
        Heading(0, 1, "class A(B)"),
        Heading(12, 2, "async def f(self) -> int"),
        Heading(python.index(b"def g"), 1, "def g()"),
    ]
    rust = b"pub struct P;\nimpl P {\n    pub fn new() -> P { P }\n}\n"
    assert [each.title for each in read(rust, "a.rs").outline] == [
        "pub struct P",
        "impl P",
        "pub fn new() -> P",
    ]
