import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from engines.api import EngineLost, Event, FinishEvent, GenerateRequest
from engines.fake import FakeSettings
from gateway.policy import AutoPolicy, Policy, RetrievalPolicy
from tests.gateway.fakes import BpeEngine, Running, Start, bpe_say, paragraphs

CHAT = {"model": "fake", "messages": [{"role": "user", "content": "hi"}], "stream": True}
FIXED = {"clock": lambda: 1_700_000_000.0, "monotonic": lambda: 0.0, "new_id": lambda: "0" * 32}


class Timeless(BpeEngine):
    """The same answer in no time at all, so that every byte of it is known."""

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Event, None]:
        async for event in super().generate(replace(request, deadline_s=float("inf"))):
            yield _timeless(event)


def _timeless(event: Event) -> Event:
    if isinstance(event, FinishEvent):
        return replace(event, queue_s=0.0, prefill_s=0.0, decode_s=0.0)
    return event


def stream(gateway: Running, **fields: object) -> bytes:
    """The body; the version of the policy, which any change of a default changes, is masked."""
    url = f"{gateway.url}/v1/chat/completions"
    raw = httpx.post(url, json={**CHAT, **fields}, timeout=20).content
    return raw.replace(gateway.parts.policy.version.encode(), b"<policy>")


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("chat_stream", {}),
        ("chat_stream_usage", {"stream_options": {"include_usage": True}}),
        ("chat_stream_length", {"max_tokens": 2}),
        ("chat_stream_logprobs", {"logprobs": True, "top_logprobs": 1, "max_tokens": 2}),
        ("chat_stream_stop", {"stop": "there"}),
    ],
)
def test_a_stream_matches_its_golden_bytes(
    start: Start, golden_dir: Path, name: str, fields: dict[str, object]
) -> None:
    gateway = start(Timeless(bpe_say("Hello there, 東京.")), **FIXED)
    assert stream(gateway, **fields) == (golden_dir / f"{name}.sse").read_bytes()


CALL = 'I look.<tool_call>{"name": "look", "arguments": {"at": "é"}}</tool_call>'
TOOL = {"type": "function", "function": {"name": "look"}}
JSON = {"type": "json_object"}


@pytest.mark.parametrize(
    ("name", "said", "fields"),
    [
        ("chat_stream_n2", "Hello there", {"n": 2}),
        ("chat_stream_tool_call", CALL, {"tools": [TOOL]}),
        ("chat_stream_json", '{"a": [1, "é"]}', {"response_format": JSON}),
    ],
)
def test_choices_calls_and_json_match_their_golden_bytes(
    start: Start, golden_dir: Path, name: str, said: str, fields: dict[str, object]
) -> None:
    gateway = start(Timeless(bpe_say(said)), **FIXED)
    assert stream(gateway, **fields) == (golden_dir / f"{name}.sse").read_bytes()


def test_a_stream_of_completions_matches_its_golden_bytes(start: Start, golden_dir: Path) -> None:
    gateway = start(Timeless(bpe_say(" there, 東京.")), **FIXED)
    body = {
        "model": "fake",
        "prompt": ["Hello", "the dog"],
        "stream": True,
        "stream_options": {"include_usage": True},
        "logprobs": 1,
    }
    raw = httpx.post(f"{gateway.url}/v1/completions", json=body, timeout=20).content
    raw = raw.replace(gateway.parts.policy.version.encode(), b"<policy>")
    assert raw == (golden_dir / "completions_stream.sse").read_bytes()


LONG = paragraphs(["The lease ends in March."], 24)
WEAK = "Which zeppelin captain visited Ouagadougou?"
CAUTIOUS = Policy(
    auto=AutoPolicy(full_max_tokens=100, hierarchical_max_tokens=200),
    retrieval=RetrievalPolicy(inline_min_chars=400, total_tokens=200, passage_tokens=100),
)


def test_an_answer_by_another_route_than_the_first_matches_its_golden_bytes(
    start: Start, golden_dir: Path
) -> None:
    gateway = start(Timeless(bpe_say("Nobody.")), CAUTIOUS, **FIXED)
    raw = stream(gateway, messages=[{"role": "user", "content": f"{LONG}\n\n{WEAK}"}])
    assert b'"escalated_from":"retrieval"' in raw
    assert raw == (golden_dir / "chat_stream_escalated.sse").read_bytes()


def test_a_streamed_response_matches_its_golden_bytes(start: Start, golden_dir: Path) -> None:
    gateway = start(Timeless(bpe_say("Hello there, 東京.")), **FIXED)
    body = {"model": "fake", "input": "hi", "stream": True}
    raw = httpx.post(f"{gateway.url}/v1/responses", json=body, timeout=20).content
    raw = raw.replace(gateway.parts.policy.version.encode(), b"<policy>")
    assert raw == (golden_dir / "responses_stream.sse").read_bytes()


def test_an_error_frame_matches_its_golden_bytes(start: Start, golden_dir: Path) -> None:
    settings = FakeSettings(failure=EngineLost("the gang died"), fails_after=1)
    gateway = start(Timeless(bpe_say("Hello"), settings), **FIXED)
    assert stream(gateway) == (golden_dir / "chat_stream_error.sse").read_bytes()


def test_a_whole_answer_matches_its_golden_bytes(start: Start, golden_dir: Path) -> None:
    gateway = start(Timeless(bpe_say("Hello there, 東京.")), **FIXED)
    body = stream(gateway, stream=False)
    assert body == (golden_dir / "chat.json").read_bytes()


class Silent(BpeEngine):
    """Says nothing for a while, then answers."""

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Event, None]:
        await asyncio.sleep(0.5)
        async for event in super().generate(request):
            yield event


def test_silence_is_filled_with_comments_that_clients_ignore(start: Start) -> None:
    gateway = start(Silent(), keep_alive_s=0.1)
    raw = stream(gateway).decode()
    assert raw.startswith(": keep-alive\n\n: keep-alive\n\n")
    chunks = gateway.client().chat.completions.create(
        model="fake", messages=[{"role": "user", "content": "hi"}], stream=True
    )
    said = "".join(c.choices[0].delta.content or "" for c in chunks)
    assert said == "Hello there."


class SilentThenLost(Silent):
    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Event, None]:
        await asyncio.sleep(0.3)
        raise EngineLost("gone")
        yield


def test_an_error_before_any_byte_is_a_status_and_after_a_keep_alive_a_frame(start: Start) -> None:
    early = httpx.post(
        f"{start(SilentThenLost(), keep_alive_s=5.0).url}/v1/chat/completions", json=CHAT
    )
    assert early.status_code == 502
    late = httpx.post(
        f"{start(SilentThenLost(), keep_alive_s=0.1).url}/v1/chat/completions", json=CHAT
    )
    assert late.status_code == 200
    assert late.text.endswith('"param":null,"code":"engine_lost"}}\n\n')
    assert "[DONE]" not in late.text


def test_progress_is_said_once_per_percent(start: Start) -> None:
    gateway = start(BpeEngine(settings=FakeSettings(prefill_chunk_tokens=5)))
    raw = stream(gateway, messages=[{"role": "user", "content": "the fox " * 400}]).decode()
    comments = [line for line in raw.split("\n\n") if line.startswith(": prefill")]
    percents = [int(line.split()[2]) for line in comments]
    assert percents == sorted(set(percents))
    assert percents[-1] == 100
    assert raw.index(": prefill") < raw.index("data:")
