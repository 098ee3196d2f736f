"""Server-sent events, however the bytes are cut."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.cli.sse_reader import SseComment, SseData, read_sse

STREAM = (
    ': prefill 43 % of 812 tokens\n\ndata: {"a": 1}\n\n'
    "event: x\nid: 7\ndata: one\ndata:two\n\n:\ndata\n\ndata: ß\u2028é\n\ndata: [DONE]\n\n"
)
EVENTS = [
    SseComment("prefill 43 % of 812 tokens"),
    SseData('{"a": 1}'),
    SseData("one\ntwo"),
    SseComment(""),
    SseData(""),
    SseData("ß\u2028é"),
    SseData("[DONE]"),
]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@given(cuts=st.lists(st.integers(0, 200), max_size=12))
def test_events_and_comments_come_whole_wherever_the_stream_is_cut(
    end: str, cuts: list[int]
) -> None:
    body = STREAM.replace("\n", end).encode()
    edges = [0, *sorted(min(cut, len(body)) for cut in cuts), len(body)]
    pieces = [body[a:b] for a, b in pairwise(edges)]
    assert list(read_sse(pieces)) == EVENTS


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_stream_that_comes_byte_by_byte_is_read_the_same(end: str) -> None:
    body = STREAM.replace("\n", end).encode()
    assert list(read_sse(body[at : at + 1] for at in range(len(body)))) == EVENTS


def test_an_event_without_its_blank_line_is_dropped() -> None:
    assert list(read_sse([b"data: a\n\ndata: b\n"])) == [SseData("a")]
    assert list(read_sse([b"data: a\n\ndata: b"])) == [SseData("a")]


def test_an_empty_body_has_no_events() -> None:
    assert list(read_sse([])) == []
