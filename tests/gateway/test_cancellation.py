import json
import logging
import socket
import time
from collections.abc import Callable

import pytest

from engines.fake import FakeSettings
from gateway.policy import AnswerPolicy, Policy
from tests.gateway.fakes import BpeEngine, Running, Start, bpe_say

LIMIT_S = 0.25


def post(gateway: Running, body: dict[str, object]) -> socket.socket:
    raw = json.dumps(body).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(raw)}\r\n\r\n"
    connection = socket.create_connection(("127.0.0.1", gateway.port))
    connection.sendall(head.encode() + raw)
    return connection


def waited_for(is_so: Callable[[], bool], limit_s: float) -> float:
    """Seconds until `is_so`; fails after the limit."""
    started = time.monotonic()
    while not is_so():
        assert time.monotonic() - started < limit_s, "it did not happen in time"
        time.sleep(0.002)
    return time.monotonic() - started


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_a_client_that_leaves_stops_the_engine(start: Start, stream: bool, phase: str) -> None:
    slow = FakeSettings(prefill_delay_s=30 if phase == "prefill" else 0, token_delay_s=0.05)
    engine = BpeEngine(bpe_say("word " * 400), slow)
    gateway = start(engine)
    body = {"model": "fake", "messages": [{"role": "user", "content": "hi"}], "stream": stream}
    connection = post(gateway, body)
    waited_for(lambda: bool(engine.requests), 5)
    if stream and phase == "decode":
        seen = b""
        while b"prefill 100 %" not in seen:
            seen += connection.recv(4096)
    else:
        time.sleep(0.1)
    assert not engine.aborted
    connection.close()
    assert waited_for(lambda: len(engine.aborted) == 1, 5) < LIMIT_S
    assert not engine.finished
    waited_for(lambda: 'outcome="cancelled"} 1.0' in page(gateway), 2)


def test_leaving_is_no_error_of_ours(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    engine = BpeEngine(bpe_say("word " * 400), FakeSettings(token_delay_s=0.02))
    gateway = start(engine)
    body = {"model": "fake", "messages": [{"role": "user", "content": "hi"}], "stream": True}
    with caplog.at_level(logging.WARNING):
        connection = post(gateway, body)
        seen = b""
        while seen.count(b"data: ") < 5:
            seen += connection.recv(4096)
        connection.close()
        upload = b"POST /v1/files HTTP/1.1\r\nHost: x\r\nContent-Length: 9000\r\nContent-Type: "
        half = b"multipart/form-data; boundary=b\r\n\r\n--b\r\n"
        connection = socket.create_connection(("127.0.0.1", gateway.port))
        connection.sendall(upload + half)
        time.sleep(0.1)
        connection.close()
        waited_for(lambda: len(engine.aborted) == 1, 5)
        time.sleep(0.2)
    assert [record.getMessage() for record in caplog.records] == []


def page(gateway: Running) -> str:
    return gateway.parts.metrics.page().decode()


def test_a_client_that_stays_gets_its_answer_after_others_left(start: Start) -> None:
    engine = BpeEngine(bpe_say("ok"), FakeSettings(prefill_delay_s=0.2))
    gateway = start(engine)
    body: dict[str, object] = {"model": "fake", "messages": [{"role": "user", "content": "hi"}]}
    leaving = [post(gateway, {**body, "stream": i % 2 == 0}) for i in range(6)]
    waited_for(lambda: len(engine.requests) == 6, 5)
    for connection in leaving:
        connection.close()
    answer = gateway.client().chat.completions.create(
        model="fake", messages=[{"role": "user", "content": "hi"}]
    )
    assert answer.choices[0].message.content == "ok"
    waited_for(lambda: len(engine.aborted) == 6, 2)


def test_an_expired_request_is_a_timeout(start: Start) -> None:
    engine = BpeEngine(settings=FakeSettings(prefill_delay_s=30))
    gateway = start(engine, Policy(answer=AnswerPolicy(deadline_s=0.2)))
    connection = post(gateway, {"model": "fake", "messages": [{"role": "user", "content": "hi"}]})
    connection.settimeout(5)
    assert connection.recv(4096).startswith(b"HTTP/1.1 504 ")
    connection.close()
    assert len(engine.failed) + len(engine.aborted) == 1
