"""`ringway demo` against a scripted gateway: what it sends, shows and judges."""

import argparse
import json
from dataclasses import dataclass

import httpx
import pytest

from gateway.api import Route
from gateway.cli import demo
from gateway.cli.demo_client import Answer, Citation, DemoClient, Refused, RouteFacts
from gateway.cli.demo_table import Row, percent, refusal_line
from gateway.cli.main import Refusal
from ingest.synth.api import CaseFile, CaseRequest, EstimateCounter, Question, synthesize
from tests.gateway.cli.scripted_gateway import Script, serving

TOKENS = 3_000


@pytest.fixture(scope="module")
def case() -> CaseFile:
    return synthesize(CaseRequest(seed=5, num_tokens=TOKENS), EstimateCounter())


@dataclass(frozen=True, kw_only=True)
class Telling:
    """How the scripted gateway answers one question."""

    text: str
    start: int
    quote: str
    route: str = "retrieval"


def honest(case: CaseFile, asked: Question) -> Telling:
    text = case.documents[0].text
    start = max(0, asked.place.start - 40)
    return Telling(
        text=f"It is {asked.answer}.", start=start, quote=text[start : asked.place.stop + 40]
    )


def sse(told: Telling) -> bytes:
    citation = {
        "file_id": "file-1",
        "filename": "case_5.txt",
        "start": told.start,
        "stop": told.start + len(told.quote),
        "quote": told.quote,
        "score": 0.9,
    }
    facts = {
        "route": told.route,
        "requested": told.route,
        "reason": "retrieval: it was asked for",
        "policy_version": "v",
        "prompt_tokens": 3123,
        "fallback_from": None,
        "escalated_from": None,
        "timing_ms": {"total": 5},
    }
    first = {"choices": [{"index": 0, "delta": {"role": "assistant"}}], "ringway": facts}
    words = [
        {"choices": [{"index": 0, "delta": {"content": f"{word} "}}]} for word in told.text.split()
    ]
    read = {"tokens_read": 1234, "coverage": 0.0213, "citations": [citation]}
    last = {
        "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}],
        "ringway": facts | read,
    }
    frames = [f"data: {json.dumps(chunk)}\n\n" for chunk in (first, *words, last)]
    comments = [": prefill 50 % of 3123 tokens\n\n", ": prefill 100 % of 3123 tokens\n\n"]
    return "".join([*comments, *frames, "data: [DONE]\n\n"]).encode()


def too_long() -> tuple[int, bytes]:
    error = {"message": "too long", "type": "invalid_request_error", "param": "messages"}
    numbers = {"num_tokens": 60_112, "limit": 8_192, "fits": "retrieval"}
    body = {"error": error | {"code": "context_length_exceeded"}, "ringway": numbers}
    return 400, json.dumps(body).encode()


def honest_script(case: CaseFile) -> Script:
    asked = case.key.demo_questions
    chat = {("retrieval", one.question): sse(honest(case, one)) for one in asked}
    return Script(chat=chat, refusals={"full": too_long()})


def run(base_url: str, *words: str) -> int:
    parser = argparse.ArgumentParser()
    demo.add_arguments(parser)
    fixed = ("--base-url", base_url, "--tokens", str(TOKENS), "--seed", "5")
    return demo.run(parser.parse_args((*fixed, *words)))


def test_facts_found_with_right_citations_are_a_success(
    case: CaseFile, capsys: pytest.CaptureFixture[str]
) -> None:
    script = honest_script(case)
    with serving(script) as base_url:
        assert run(base_url, "--routes", "retrieval,full") == 0
    shown = capsys.readouterr().out
    assert "file-1: in_progress\nfile-1: processed" in shown
    assert "The gateway counted 3,123 prompt tokens" in shown
    assert "full: 60,112 tokens > 8,192" in " ".join(shown.replace("|", " ").split())
    assert "Retrieval found 3 of 3" in shown
    for word in ("1,234", "2.1%", "right", "yes"):
        assert word in shown
    assert "\x1b" not in shown
    assert shown.isascii()


def test_it_uploads_the_case_file_and_deletes_it_afterwards(case: CaseFile) -> None:
    script = honest_script(case)
    with serving(script) as base_url:
        run(base_url, "--routes", "retrieval")
    (upload,) = script.uploads
    assert case.documents[0].text.encode() in upload
    assert b"user_data" in upload
    assert script.deleted == ["/v1/files/file-1"]


def test_keep_leaves_the_file_in_the_gateway(case: CaseFile) -> None:
    script = honest_script(case)
    with serving(script) as base_url:
        run(base_url, "--routes", "retrieval", "--keep")
    assert script.deleted == []


def test_a_route_that_is_too_short_is_asked_once_and_without_fallback(case: CaseFile) -> None:
    script = honest_script(case)
    with serving(script) as base_url:
        run(base_url, "--routes", "full,retrieval")
    assert [asked["fidelity"] for asked in script.asked] == ["full", *["retrieval"] * 3]
    assert not any(asked["allow_fallback"] for asked in script.asked)
    assert all(asked["stream"] for asked in script.asked)


@pytest.mark.parametrize("fault", ["answer", "quote", "offset", "place"])
def test_one_fault_in_one_answer_fails_the_run(case: CaseFile, fault: str) -> None:
    script = honest_script(case)
    asked = case.key.demo_questions[1]
    good = honest(case, asked)
    text = case.documents[0].text
    bad = {
        "answer": Telling(text="I do not know.", start=good.start, quote=good.quote),
        "quote": Telling(text=good.text, start=good.start, quote=good.quote[:-1] + "#"),
        "offset": Telling(text=good.text, start=good.start + 1, quote=good.quote),
        "place": Telling(text=good.text, start=0, quote=text[:30]),
    }[fault]
    script.chat = {**script.chat, ("retrieval", asked.question): sse(bad)}
    with serving(script) as base_url:
        assert run(base_url, "--routes", "retrieval") == 1


def test_a_file_that_fails_is_a_sentence_with_its_cause(case: CaseFile) -> None:
    script = honest_script(case)
    script.statuses = ["in_progress", "error"]
    with serving(script) as base_url, pytest.raises(Refusal, match="it is broken"):
        run(base_url)
    assert script.deleted == ["/v1/files/file-1"]


def test_a_file_that_is_never_ready_is_given_up(case: CaseFile) -> None:
    script = honest_script(case)
    script.statuses = ["in_progress"]
    with serving(script) as base_url, pytest.raises(Refusal, match="still in_progress"):
        run(base_url, "--ingest-timeout", "0.1")


@pytest.mark.parametrize(
    ("stream", "sentence"),
    [
        (b'data: {"error": {"message": "the engine died"}}\n\n', "the engine died"),
        (b'data: {"choices": []}\n\n', "ended before"),
    ],
)
def test_a_stream_that_breaks_is_a_row_and_not_a_crash(
    case: CaseFile, capsys: pytest.CaptureFixture[str], stream: bytes, sentence: str
) -> None:
    script = honest_script(case)
    asked = case.key.demo_questions[0]
    script.chat = {**script.chat, ("retrieval", asked.question): stream}
    with serving(script) as base_url:
        assert run(base_url, "--routes", "retrieval") == 1
    shown = " ".join(capsys.readouterr().out.replace("|", " ").split())
    assert sentence in shown
    assert "Retrieval found 2 of 3" in shown


@pytest.mark.parametrize(
    "stream", [b"data: {}\n\ndata: [DONE]\n\n", b"data: nonsense\n\n"], ids=["bare", "garbled"]
)
def test_a_stream_that_is_no_ringway_answer_is_a_sentence(case: CaseFile, stream: bytes) -> None:
    script = honest_script(case)
    script.chat = dict.fromkeys(script.chat, stream)
    with serving(script) as base_url, pytest.raises(Refusal, match=r"Ringway|not understood"):
        run(base_url, "--routes", "retrieval")


def test_no_gateway_is_a_sentence_with_the_address() -> None:
    with serving(Script(chat={})) as base_url:
        pass
    with pytest.raises(Refusal, match="no answer from the gateway at http://127"):
        run(base_url)


@pytest.mark.parametrize("routes", ["retrieval,teleport", ","])
def test_an_unknown_route_is_refused(routes: str) -> None:
    with pytest.raises(Refusal, match="route"):
        run("http://127.0.0.1:9/v1", "--routes", routes)


def test_questions_only_asks_nobody(case: CaseFile, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("http://127.0.0.1:9/v1", "--questions-only") == 0
    shown = capsys.readouterr().out
    for asked in case.key.demo_questions:
        assert f"{asked.question} -> {asked.answer}" in shown


def test_prefill_progress_is_read_from_the_comments(case: CaseFile) -> None:
    script = honest_script(case)
    asked = case.key.demo_questions[0]
    seen: list[tuple[int, int]] = []
    body = demo.chat_body("tiny", "file-1", asked.question, Route.RETRIEVAL)
    with serving(script) as base_url, httpx.Client(base_url=base_url) as http:
        answer = DemoClient(http).ask(body, lambda percent, of: seen.append((percent, of)))
    assert seen == [(50, 3123), (100, 3123)]
    assert isinstance(answer, Answer)
    assert answer.facts.tokens_read == 1234


def test_a_citation_of_another_file_is_not_right(case: CaseFile) -> None:
    asked = case.key.demo_questions[0]
    told = honest(case, asked)
    stop = told.start + len(told.quote)
    citation = Citation(file_id="file-2", start=told.start, stop=stop, quote=told.quote)
    facts = RouteFacts(route="retrieval", citations=(citation,))
    row = Row(
        number=1,
        route=Route.RETRIEVAL,
        question=asked,
        outcome=Answer(text=asked.answer, facts=facts, seconds=1.0),
        document=case.documents[0].text,
        file_id="file-1",
    )
    assert row.is_found
    assert not row.is_cited_right


def test_small_numbers_and_wordless_refusals_are_still_shown() -> None:
    assert [percent(share) for share in (0.0213, 0.43, 1.0)] == ["2.1%", "43%", "100%"]
    assert refusal_line(Route.FULL, Refused(message="engine gone")) == "full: engine gone"
