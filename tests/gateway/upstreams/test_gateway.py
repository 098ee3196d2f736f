"""A whole gateway over mock upstreams: several models, clients that leave, map-reduce."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import httpx
import pytest

from tests.gateway.fakes import paragraphs
from tests.gateway.upstreams.mock_upstream import (
    Asked,
    MockUpstream,
    Reply,
    delta,
    mock,
    refused,
    said,
    sse,
)
from tests.gateway.upstreams.serving import gateway_of


@asynccontextmanager
async def gateway_over(
    context_tokens: int = 8192, **models: MockUpstream
) -> AsyncIterator[httpx.AsyncClient]:
    config = {
        name: {"context_tokens": context_tokens, "replicas": [{"url": up.url, "kind": "openai"}]}
        for name, up in models.items()
    }
    async with gateway_of(config) as client:
        yield client


def chat(model: str = "m", text: str = "Hi", **fields: object) -> dict[str, object]:
    return {"model": model, "messages": [{"role": "user", "content": text}], **fields}


async def test_a_gateway_serves_the_models_of_its_file_and_no_others() -> None:
    async with (
        mock(lambda _: said("from a")) as a,
        mock(lambda _: said("from b")) as b,
        gateway_over(a=a, b=b) as client,
    ):
        models = (await client.get("/v1/models")).json()
        assert [one["id"] for one in models["data"]] == ["a", "b"]
        assert (await client.get("/v1/models/b")).json()["id"] == "b"
        for name in "ab":
            answer = (await client.post("/v1/chat/completions", json=chat(name))).json()
            assert answer["choices"][0]["message"]["content"] == f"from {name}"
            assert answer["usage"]["prompt_tokens"] == 10
            assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 4
        for unknown in (
            await client.post("/v1/chat/completions", json=chat("c")),
            await client.get("/v1/models/c"),
        ):
            assert unknown.status_code == 404
            assert unknown.json()["error"]["code"] == "model_not_found"


async def test_an_upstream_s_overflow_is_openai_s_error() -> None:
    reply = refused(400, "prompt is too long: 9000 tokens > 8000 maximum")
    async with mock(lambda _: reply) as up, gateway_over(m=up) as client:
        body = chat(fidelity="full", allow_fallback=False)
        answer = await client.post("/v1/chat/completions", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "context_length_exceeded"
    assert answer.json()["error"]["param"] == "messages"


async def test_a_stream_that_breaks_off_ends_with_an_error_frame() -> None:
    reply = Reply(steps=sse(delta("Hel")), ends=False)
    async with mock(lambda _: reply) as up, gateway_over(m=up) as client:
        answer = await client.post("/v1/chat/completions", json=chat(stream=True))
    frames = [line for line in answer.text.split("\n\n") if line.startswith("data: ")]
    assert json.loads(frames[-1][6:])["error"]["code"] == "engine_lost"


SILENT = Reply(before_s=30)
HALFWAY = Reply(steps=[*sse(delta("x")), 30.0])


@pytest.mark.parametrize(
    ("stream", "reply"),
    [(False, SILENT), (False, HALFWAY), (True, SILENT), (True, HALFWAY)],
    ids=["whole, silent", "whole, halfway", "before the first byte", "mid-stream"],
)
async def test_a_client_that_leaves_frees_the_upstream(stream: bool, reply: Reply) -> None:
    loop = asyncio.get_running_loop()
    async with mock(lambda _: reply) as up, gateway_over(m=up) as client:
        raw = json.dumps(chat(stream=stream)).encode()
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(raw)}\r\n\r\n"
        )
        _, writer = await asyncio.open_connection("127.0.0.1", client.base_url.port)
        writer.write(head.encode() + raw)
        await wait_until(lambda: bool(up.asked))
        await asyncio.sleep(0.1)
        assert not up.aborted_at
        left_at = loop.time()
        writer.close()
        await wait_until(lambda: bool(up.aborted_at))
        assert up.aborted_at[0] - left_at < 0.25


async def wait_until(is_so: Callable[[], bool], limit_s: float = 5.0) -> None:
    async with asyncio.timeout(limit_s):
        while not is_so():  # noqa: ASYNC110 - what is waited for happens in a mock
            await asyncio.sleep(0.005)


FACTS = ("The lease ends on 4 March 2031.", "The witness is Ada Quill.")


class Reader:
    """A model that notes the planted facts it is shown, and answers with its notes."""

    def __init__(self) -> None:
        self.failing: dict[str, int] = {}

    def __call__(self, asked: Asked) -> Reply:
        text = json.dumps(asked.body["messages"], ensure_ascii=False).replace("\\n", "\n")
        for mark, times in self.failing.items():
            if mark in text and times > 0:
                self.failing[mark] -= 1
                return refused(500, "boom")
        if "Note every fact in this part" in text:
            noted = [fact for fact in FACTS if fact in text]
            return said("\n".join(noted) or "NONE")
        numbers = re.findall(r"\[(\d+)\]\n(.+)", text)
        return said(*(f"{fact} [{number}] " for number, fact in numbers))


def book() -> str:
    return paragraphs(FACTS, 400) + "\n\nWhen does the lease end, and who is the witness?"


async def test_hierarchical_is_map_reduce_and_says_so() -> None:
    reader = Reader()
    async with mock(reader) as up, gateway_over(2048, m=up) as client:
        body = chat(text=book(), fidelity="hierarchical", max_tokens=64)
        answer = (await client.post("/v1/chat/completions", json=body)).json()
    told = answer["ringway"]
    assert (told["route"], told["method"], told["coverage"]) == ("hierarchical", "map_reduce", 1.0)
    assert told["count_kind"] == "estimated"
    num_parts = len(up.asked) - 1
    assert num_parts > 3
    assert f"over {num_parts} parts" in told["reason"]
    assert all(fact in answer["choices"][0]["message"]["content"] for fact in FACTS)
    quotes = {one["quote"] for one in told["citations"]}
    assert quotes >= set(FACTS)
    assert all(book()[one["start"] : one["stop"]] == one["quote"] for one in told["citations"])
    read = "".join(str(asked.body["messages"]) for asked in up.asked)
    assert all(f"Filler number {i} tells" in read for i in range(400)), "every part was read"
    assert answer["usage"]["prompt_tokens"] == told["tokens_read"] == 10 * len(up.asked)
    assert up.num_connections <= 4


async def test_map_reduce_tells_its_progress() -> None:
    async with mock(Reader()) as up, gateway_over(2048, m=up) as client:
        body = chat(text=book(), fidelity="hierarchical", max_tokens=64, stream=True)
        answer = await client.post("/v1/chat/completions", json=body)
    percents = [int(one) for one in re.findall(r": prefill (\d+) %", answer.text)]
    assert len(percents) > 3
    assert percents == sorted(percents)
    assert percents[-1] == 100


async def test_leaving_while_parts_are_read_frees_every_upstream_request() -> None:
    async with mock(lambda _: SILENT) as up, gateway_over(2048, m=up) as client:
        body = chat(text=book(), fidelity="hierarchical", max_tokens=64)
        leaving = asyncio.create_task(client.post("/v1/chat/completions", json=body))
        await wait_until(lambda: len(up.asked) == 4)
        await asyncio.sleep(0.1)
        leaving.cancel()
        await wait_until(lambda: len(up.aborted_at) == 4)
    assert len(up.asked) == 4, "four parts at a time"


async def test_notes_that_do_not_fit_are_joined_before_the_answer() -> None:
    def wordy(asked: Asked) -> Reply:
        text = json.dumps(asked.body["messages"])
        if "Answer from them" in text:
            return said("the end")
        if "Join them into one list" in text:
            return said("joined")
        return said("a note of many words, " * 60)

    async with mock(wordy) as up, gateway_over(2048, m=up) as client:
        body = chat(text=book(), fidelity="hierarchical", max_tokens=64)
        answer = (await client.post("/v1/chat/completions", json=body)).json()
    assert answer["choices"][0]["message"]["content"] == "the end"
    joins = [asked for asked in up.asked if b"Join them into one list" in asked.raw]
    assert joins
    assert answer["usage"]["prompt_tokens"] == 10 * len(up.asked)


async def test_a_part_that_fails_once_is_read_again_and_one_that_fails_twice_fails_all() -> None:
    reader = Reader()
    body = chat(text=book(), fidelity="hierarchical", max_tokens=64, allow_fallback=False)
    async with mock(reader) as up, gateway_over(2048, m=up) as client:
        reader.failing = {"Filler number 200 ": 1}
        answer = await client.post("/v1/chat/completions", json=body)
        assert answer.status_code == 200
        reader.failing = {"Filler number 200 ": 2}
        answer = await client.post("/v1/chat/completions", json=body)
    assert answer.status_code == 502
    assert re.search(r"part \d+ of \d+ could not be read", answer.json()["error"]["message"])
