"""Whatever a request goes through, its text is in no log line."""

import json
import logging
from collections.abc import Iterator

import httpx
import pytest

from engines.api import EngineLost
from engines.fake import FakeSettings
from gateway.logs import JsonLines, RequestIdFilter
from gateway.policy import AutoPolicy, Policy
from gateway.tenancy.api import Grants
from tests.gateway import plain_http
from tests.gateway.fakes import BpeEngine, FailingEngine, Running, Start, bpe_say, paragraphs
from tests.gateway.tenancy.test_keys import Issued

CANARY = "zyxomma"
"""In every text that is sent, and in every answer."""


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []
        self.addFilter(RequestIdFilter())
        self.setFormatter(JsonLines())

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@pytest.fixture
def lines() -> Iterator[list[str]]:
    handler, root = Lines(), logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    logging.getLogger("httpcore").setLevel(logging.INFO)
    try:
        yield handler.lines
    finally:
        root.removeHandler(handler)
        root.setLevel(before)


def call(gateway: Running, key: dict[str, str], **body: object) -> httpx.Response:
    sent = {"model": "fake", **body}
    url = f"{gateway.url}/v1/chat/completions"
    return plain_http.post(url, json=sent, headers=key, timeout=15)


def say(text: str) -> list[dict[str, str]]:
    return [{"role": "system", "content": CANARY}, {"role": "user", "content": text}]


def test_no_log_line_holds_text_of_a_prompt_or_an_answer(start: Start, lines: list[str]) -> None:
    issued = Issued()
    key = issued.issue("acme", Grants(tokens_per_min=100_000))
    policy = Policy(auto=AutoPolicy(full_max_tokens=200, hierarchical_max_tokens=400))
    gateway = start(BpeEngine(bpe_say(f"{CANARY} it is")), policy, issued=issued)
    short = say(f"{CANARY} is who?")
    context = paragraphs([f"The {CANARY} lives in Lisbon."], 60)
    long = say(f"{context}\n\nWhere does the {CANARY} live?")
    assert call(gateway, key, messages=short).status_code == 200
    assert call(gateway, key, messages=short, stream=True).status_code == 200
    for fidelity in ("auto", "retrieval", "hierarchical", "full"):
        assert call(gateway, key, messages=long, fidelity=fidelity).status_code == 200
    documents = [{"id": CANARY, "text": context}]
    assert call(gateway, key, messages=short, documents=documents).status_code == 200
    assert call(gateway, key, messages=short, max_tokens=99_999_999).status_code >= 400
    assert call(gateway, key, messages=short, **{CANARY: CANARY}).status_code == 400
    assert call(gateway, key, messages=[{"role": CANARY, "content": 5}]).status_code == 400
    assert call(gateway, key, model=CANARY, messages=short).status_code == 404
    assert call(gateway, {"authorization": f"Bearer {CANARY}"}, messages=short).status_code == 401
    form = {"file": (f"{CANARY}.txt", context.encode())}
    url = f"{gateway.url}/v1/files"
    assert (
        plain_http.post(url, files=form, data={"purpose": "user_data"}, headers=key).status_code
        == 200
    )
    broken = BpeEngine(
        bpe_say(f"{CANARY} a b"), FakeSettings(failure=EngineLost("gone"), fails_after=1)
    )
    for engine in (broken, FailingEngine(RuntimeError("unforeseen"))):
        failing = start(engine, issued=issued)
        for stream in (True, False):
            call(failing, key, messages=short, stream=stream)

    assert lines
    assert [line for line in lines if CANARY in line] == []
    ends = [json.loads(line) for line in lines if '"event":"request"' in line]
    whole = ends[0]
    assert whole["outcome"] == "finished"
    assert (whole["tenant"], whole["key_id"], whole["route"]) == ("acme", "key_0", "full")
    assert whole["prompt_tokens"] == whole["tokens_read"] > 0
    assert whole["completion_tokens"] > 0
    assert whole["request_id"].startswith("req_")
    assert {"unforeseen error", "request failed"} & {json.loads(line)["event"] for line in lines}
