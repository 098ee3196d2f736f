"""Images and other things that only some upstreams can do: passed on there, refused elsewhere."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.upstreams.config import UpstreamsConfig
from tests.gateway.fakes import paragraphs, tokenizer_files
from tests.gateway.upstreams.mock_upstream import (
    Asked,
    MockUpstream,
    Reply,
    finish,
    mock,
    said,
    sse,
)
from tests.gateway.upstreams.serving import gateway_of

PIXEL = "data:image/png;base64,iVBORw0KGgo="
IMAGE = {"type": "image_url", "image_url": {"url": PIXEL, "detail": "high"}}


def text(said: str) -> dict[str, object]:
    return {"type": "text", "text": said}


def ask(*parts: object, **fields: object) -> dict[str, object]:
    return {"model": "sees", "messages": [{"role": "user", "content": list(parts)}], **fields}


@asynccontextmanager
async def seeing(
    script: Any = lambda _: said("A lighthouse."), kind: str = "openai", **model: object
) -> AsyncIterator[tuple[httpx.AsyncClient, MockUpstream]]:
    """A gateway with a model that takes images, and one of the same server that reads text."""
    async with mock(script) as up:
        replicas = [{"url": up.url, "kind": kind}]
        config: dict[str, dict[str, object]] = {
            "sees": {"context_tokens": 8192, "replicas": replicas, "images": True, **model},
            "reads": {"context_tokens": 8192, "replicas": replicas},
        }
        async with gateway_of(config) as client:
            yield client, up


async def post(client: httpx.AsyncClient, body: object, path: str = "chat/completions") -> Any:
    answer = await client.post(f"/v1/{path}", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def sent(up: MockUpstream) -> Any:
    return up.asked[-1].body


async def test_images_reach_the_upstream_in_their_places() -> None:
    other = {"type": "image_url", "image_url": {"url": "https://example.org/b.png"}}
    async with seeing() as (client, up):
        body = await post(client, ask(IMAGE, text("First."), other, text("Which is older?")))
    assert body["choices"][0]["message"]["content"] == "A lighthouse."
    [message] = sent(up)["messages"]
    assert message["content"] == [
        IMAGE,
        text("First.\n"),
        other,
        text("Which is older?"),
    ]


async def test_a_response_s_images_reach_it_too_also_in_later_turns() -> None:
    part = {"type": "input_image", "image_url": PIXEL, "detail": "low"}
    item = {"role": "user", "content": [{"type": "input_text", "text": "What is it?"}, part]}
    async with seeing() as (client, up):
        first = await post(client, {"model": "sees", "input": [item]}, "responses")
        follow = {"model": "sees", "input": "Sure?", "previous_response_id": first["id"]}
        await post(client, follow, "responses")
    assert first["output"][0]["content"][0]["text"] == "A lighthouse."
    image = {"type": "image_url", "image_url": {"url": PIXEL, "detail": "low"}}
    assert sent(up)["messages"][0]["content"] == [text("What is it?"), image]
    assert [one["role"] for one in sent(up)["messages"]] == ["user", "assistant", "user"]


async def test_an_image_is_counted_as_configured_and_the_count_is_said_to_be_an_estimate(
    tmp_path: Path,
) -> None:
    (tmp_path / "tokenizer.json").write_bytes(tokenizer_files().tokenizer_json)
    low = {"type": "image_url", "image_url": {"url": PIXEL, "detail": "low"}}
    async with seeing(image_tokens=1000, tokenizer=tmp_path, kind="vllm") as (client, _):
        plain = (await post(client, ask(text("Hi"))))["ringway"]
        one = (await post(client, ask(text("Hi"), IMAGE)))["ringway"]
        both = (await post(client, ask(text("Hi"), IMAGE, low)))["ringway"]
        counted = await post(client, ask(text("Hi"), IMAGE), "tokenize")
    assert plain["count_kind"] == "exact"
    assert (one["count_kind"], both["count_kind"]) == ("estimated", "estimated")
    assert one["prompt_tokens"] == plain["prompt_tokens"] + 1000
    assert both["prompt_tokens"] == plain["prompt_tokens"] + 1085
    assert (counted["count"], counted["count_kind"]) == (one["prompt_tokens"], "estimated")
    assert counted["tokens"] == []


async def test_images_count_towards_the_limit() -> None:
    async with seeing(image_tokens=3000) as (client, up):
        answer = await client.post("/v1/chat/completions", json=ask(*[IMAGE] * 3, text("Hi")))
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "context_length_exceeded"
    assert answer.json()["ringway"]["num_tokens"] > 9000
    assert up.asked == []


async def test_what_is_noted_is_text_and_the_answer_sees_the_image_once() -> None:
    book = paragraphs(["Anna signed it."], 900)

    def script(asked: Asked) -> Reply:
        return said("Anna." if b"image_url" in asked.raw else "Anna signed it.")

    async with seeing(script, image_tokens=500) as (client, up):
        asked = ask(text(book + "\n\nWho signed this?"), IMAGE, fidelity="hierarchical")
        body = await post(client, {**asked, "max_tokens": 64})
    assert body["ringway"]["method"] == "map_reduce"
    assert body["choices"][0]["message"]["content"] == "Anna."
    assert [b"image_url" in one.raw for one in up.asked].count(True) == 1
    assert sent(up)["messages"][-1]["content"][-1] == IMAGE


@pytest.mark.parametrize("path", ["chat/completions", "tokenize"])
async def test_a_model_that_reads_text_refuses_an_image_by_its_place_and_says_who_takes_it(
    path: str,
) -> None:
    async with seeing() as (client, up):
        body = {**ask(text("What is it?"), IMAGE), "model": "reads"}
        answer = await client.post(f"/v1/{path}", json=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, "unsupported_parameter")
    assert error["param"] == "messages[0].content[1]"
    assert "reads text only" in error["message"]
    assert error["message"].endswith("Those that do: sees.")
    assert up.asked == []


async def test_a_kept_image_that_a_model_cannot_see_is_said_to_come_from_before() -> None:
    item = {"role": "user", "content": [{"type": "input_image", "image_url": PIXEL}]}
    async with seeing() as (client, _):
        first = await post(client, {"model": "sees", "input": [item]}, "responses")
        follow = {"model": "reads", "input": "Sure?", "previous_response_id": first["id"]}
        answer = await client.post("/v1/responses", json=follow)
        streamed = await client.post("/v1/responses", json={**follow, "stream": True})
    for one in (answer, streamed):
        assert one.status_code == 400
        assert one.json()["error"]["param"] == "previous_response_id"


PASSED = {
    "reasoning_effort": "high",
    "verbosity": "low",
    "prompt_cache_retention": "24h",
    "prompt_cache_options": {"mode": "explicit", "ttl": "30m"},
}


async def test_openai_s_own_fields_go_to_openai_as_they_came() -> None:
    async with seeing() as (client, up):
        await post(client, ask(text("Hi"), **PASSED))
        assert {name: sent(up).get(name) for name in PASSED} == PASSED
        told = {"reasoning": {"effort": "high"}, "text": {"verbosity": "low"}}
        answer = await post(client, {"model": "sees", "input": "Hi", **told}, "responses")
    assert (sent(up)["reasoning_effort"], sent(up)["verbosity"]) == ("high", "low")
    assert answer["reasoning"]["effort"] == "high"
    assert answer["text"]["verbosity"] == "low"


@pytest.mark.parametrize("name", PASSED)
async def test_elsewhere_they_are_refused_by_name(name: str) -> None:
    async with seeing(kind="llamacpp") as (client, up):
        answer = await client.post(
            "/v1/chat/completions", json=ask(text("Hi"), **{name: PASSED[name]})
        )
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (
        400,
        "unsupported_parameter",
        name,
    )
    assert up.asked == []


async def test_values_that_ask_for_nothing_special_are_fine_everywhere() -> None:
    neutral = {"reasoning_effort": "none", "verbosity": "medium"}
    async with seeing(kind="llamacpp") as (client, up):
        await post(client, ask(text("Hi"), **neutral, prompt_cache_retention="in_memory"))
    assert not {*neutral, "prompt_cache_retention"} & set(sent(up))


async def test_thoughts_are_counted() -> None:
    usage = {
        "choices": [],
        "usage": {
            "prompt_tokens": 10,
            "completion_tokens": 40,
            "completion_tokens_details": {"reasoning_tokens": 38},
        },
    }
    reply = Reply(steps=sse(finish(), usage, b"[DONE]"))
    async with seeing(lambda _: reply) as (client, _):
        chat = await post(client, ask(text("Hi")))
        response = await post(client, {"model": "sees", "input": "Hi"}, "responses")
    assert chat["usage"]["completion_tokens_details"]["reasoning_tokens"] == 38
    assert response["usage"]["output_tokens_details"]["reasoning_tokens"] == 38


async def test_whom_a_caller_asks_for_is_told_to_openai_under_another_name() -> None:
    async with seeing() as (client, up):
        for name in ("ann", "ann", "bob"):
            await post(client, ask(text("Hi"), safety_identifier=name))
        await post(client, ask(text("Hi"), user="ann"))
    told = [one.body["safety_identifier"] for one in up.asked]
    assert told[0] == told[1] == told[3] != told[2]
    assert not any(b"ann" in one.raw or b"bob" in one.raw for one in up.asked)
    async with seeing(kind="vllm") as (client, up):
        await post(client, ask(text("Hi"), safety_identifier="ann"))
    assert "safety_identifier" not in sent(up)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ({"context_tokens": 4096, "image_tokens": 9}, "image_tokens needs 'images: true'"),
        ({"kind": "ringway", "images": True}, "a ringway engine reads text"),
    ],
)
def test_what_cannot_be_is_refused_at_start(model: dict[str, object], said: str) -> None:
    kind = model.pop("kind", "openai")
    model["replicas"] = [{"url": "http://x", "kind": kind}]
    with pytest.raises(ValueError, match=said):
        UpstreamsConfig.model_validate({"models": {"m": model}})
