"""Server-sent events, however they are cut into chunks."""

import time
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.upstreams import events
from gateway.upstreams.events import EventTooLong, data_of

STREAM = (
    b": comment\r\n\r\nevent: x\ndata: one\n\ndata:two\r\nid: 7\r\n\r\nnonsense\n\n"
    b"data: a\ndata: b\n\ndata\n\ndata: \n\ndata: cut short"
)
TOLD = [b"one", b"two", b"a\nb", b""]


async def chunked(raw: bytes, size: int) -> AsyncIterator[bytes]:
    for start in range(0, len(raw), size):
        yield raw[start : start + size]


@given(size=st.integers(1, len(STREAM)))
async def test_data_comes_out_whole(size: int) -> None:
    assert [data async for data in data_of(chunked(STREAM, size))] == TOLD


async def test_a_line_of_16_mb_takes_no_longer_than_its_bytes() -> None:
    line = b"data: " + b"x" * 2**24 + b"\n\n"
    started = time.process_time()
    [data] = [data async for data in data_of(chunked(line, 4096))]
    assert len(data) == 2**24
    assert time.process_time() - started < 2


async def test_an_event_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MAX_EVENT_BYTES", 1000)
    for raw in (b"data: " + b"x" * 2000, b"data: 0123456789\n" * 200):
        with pytest.raises(EventTooLong):
            async for _ in data_of(chunked(raw, 64)):
                pass
