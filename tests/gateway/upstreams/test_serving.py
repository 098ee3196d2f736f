"""An upstream as an engine: what is sent, what comes back, and every way in which it can fail."""

import asyncio
import gzip
import socket
from contextlib import aclosing

import pytest

from engines.api import (
    EngineBusy,
    EngineLost,
    EngineRefused,
    FinishEvent,
    FinishReason,
    PromptTooLong,
    RequestExpired,
    Sampling,
    TextEvent,
    TextLogprob,
    ToolCallEvent,
)
from gateway.upstreams.fleet import Fleet
from gateway.upstreams.http import Pool
from gateway.upstreams.pace import Pace, PaceSettings
from tests.gateway.upstreams.mock_upstream import (
    USAGE,
    Asked,
    Reply,
    delta,
    finish,
    mock,
    refused,
    said,
    sse,
)
from tests.gateway.upstreams.serving import engine_over, heard, request, text_of


async def test_text_usage_and_finish_come_back() -> None:
    async with mock(lambda _: said("Hel", "lo")) as up, engine_over(up.url) as engine:
        events = await heard(engine)
    assert text_of(events) == "Hello"
    end = events[-1]
    assert isinstance(end, FinishEvent)
    assert (end.reason, end.prompt_tokens, end.cached_tokens) == (FinishReason.STOP, 10, 4)
    assert end.completion_tokens == 2
    sent = up.asked[0].body
    assert sent["messages"] == [{"role": "user", "content": "Hi"}]
    assert sent["stream_options"] == {"include_usage": True}
    assert (sent["model"], sent["max_completion_tokens"], sent["seed"]) == ("m", 16, 5)


async def test_a_caller_s_names_do_not_leave_the_house() -> None:
    async with mock(lambda _: said("x")) as up, engine_over(up.url) as engine:
        await heard(engine, request(cache_key="ann/secret-session"))
        await heard(engine, request(cache_key="bob/secret-session"))
    keys = [asked.body["prompt_cache_key"] for asked in up.asked]
    assert len(set(keys)) == 2
    assert not any(b"secret" in asked.raw for asked in up.asked)


async def test_tool_calls_come_in_pieces() -> None:
    pieces = [
        {"index": 0, "id": "c1", "type": "function", "function": {"name": "f", "arguments": ""}},
        {"index": 0, "function": {"arguments": '{"a":1}'}},
    ]
    chunks = [{"choices": [{"index": 0, "delta": {"tool_calls": [one]}}]} for one in pieces]
    reply = Reply(steps=sse(*chunks, finish("tool_calls"), USAGE, b"[DONE]"))
    async with mock(lambda _: reply) as up, engine_over(up.url) as engine:
        *calls, end = await heard(engine)
    assert calls == [
        ToolCallEvent(call=0, id="c1", name="f", arguments=""),
        ToolCallEvent(call=0, arguments='{"a":1}'),
    ]
    assert isinstance(end, FinishEvent)
    assert end.reason is FinishReason.TOOL_CALLS


async def test_logprobs_are_passed() -> None:
    told = {"token": "é", "logprob": -0.5, "bytes": [195, 169]}
    content = [{**told, "top_logprobs": [told]}]
    chunk = delta("é", logprobs={"content": content})
    reply = Reply(steps=sse(chunk, finish(), USAGE, b"[DONE]"))
    async with mock(lambda _: reply) as up, engine_over(up.url) as engine:
        events = await heard(engine, request(sampling=Sampling(top_logprobs=1)))
    assert (up.asked[0].body["logprobs"], up.asked[0].body["top_logprobs"]) == (True, 1)
    plain = TextLogprob("é", (195, 169), -0.5)
    assert events[0] == TextEvent("é", 0, (TextLogprob("é", (195, 169), -0.5, (plain,)),))


async def test_connections_are_kept() -> None:
    async with mock(lambda _: said("x")) as up, engine_over(up.url) as engine:
        for _ in range(5):
            await heard(engine)
    assert up.num_connections == 1


async def test_what_a_burst_opened_does_not_stay_open() -> None:
    async with mock(lambda _: Reply(steps=sse("x"), before_s=0.1)) as up:
        pool = Pool(up.url, {}, idle_s=0.3)

        async def ask() -> None:
            async with pool.post("/v1/x", b"{}", {}) as response:
                assert [chunk async for chunk in response.chunks()]

        async with asyncio.TaskGroup() as group:
            for _ in range(8):
                group.create_task(ask())
        assert up.num_connections == 8
        for _ in range(4):
            await ask()
        await asyncio.sleep(0.05)
        assert up.num_connections == 8
        assert sum(not writer.is_closing() for writer in up.writers) == 1
        await pool.aclose()


BROKEN = {
    "no finish": Reply(steps=sse(delta("He"))),
    "done without finish": Reply(steps=sse(delta("He"), b"[DONE]")),
    "breaks off": Reply(steps=sse(delta("He")), ends=False),
    "not json": Reply(steps=sse(delta("He"), b"{oops")),
    "wrong types": Reply(steps=sse(delta("He"), {"choices": "none"})),
    "an answer nobody asked for": Reply(steps=sse(finish(index=3))),
    "aborted": Reply(steps=sse(delta("He"), finish("abort"))),
    "an error instead": Reply(steps=sse(delta("He"), {"error": {"message": "CUDA error"}})),
    "a page of html": Reply(steps=[b"<html>"], headers=[("content-type", "text/html")]),
    "a whole answer": Reply(steps=[b"{}"], headers=[("content-type", "application/json")]),
    "not gzip": Reply(steps=[b"data: x\n\n"], headers=[("content-encoding", "gzip")]),
    "status 500": refused(500, "boom"),
}


@pytest.mark.parametrize("reply", BROKEN.values(), ids=BROKEN)
async def test_no_answer_ends_in_silence(reply: Reply) -> None:
    async with mock(lambda _: reply) as up, engine_over(up.url) as engine:
        with pytest.raises(EngineLost):
            await heard(engine)
    assert len(up.asked) == 1, "what may have been worked on is not tried again"


async def test_a_body_without_a_length_ends_with_its_connection() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n")
        writer.write(b"".join(one for one in said("ok").steps if isinstance(one, bytes)))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with engine_over(url) as engine:
        for _ in range(2):
            assert text_of(await heard(engine)) == "ok"
    server.close()


async def test_a_zipped_stream_with_a_line_of_megabytes_is_read() -> None:
    raw = b"".join(one for one in said("x" * 4_000_000).steps if isinstance(one, bytes))
    headers = [("content-type", "text/event-stream"), ("content-encoding", "gzip")]
    reply = Reply(steps=[gzip.compress(raw, 1)], headers=headers)
    async with mock(lambda _: reply) as up, engine_over(up.url) as engine:
        assert len(text_of(await heard(engine))) == 4_000_000


@pytest.mark.parametrize("status", [200, 400])
async def test_an_overflow_is_told_with_its_numbers(status: int) -> None:
    reply = refused(status, "prompt is too long: 9000 tokens > 8000 maximum")
    async with mock(lambda _: reply) as up, engine_over(up.url) as engine:
        with pytest.raises(PromptTooLong) as refusal:
            await heard(engine)
    assert (refusal.value.num_tokens, refusal.value.limit) == (9000, 8000)


async def test_a_refusal_is_passed_on_and_no_failure_of_the_server() -> None:
    async with mock(lambda _: refused(400, "bad role")) as up, engine_over(up.url) as engine:
        for _ in range(5):
            with pytest.raises(EngineRefused, match="bad role"):
                await heard(engine)
    assert len(up.asked) == 5


def closed_url() -> str:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{sock.getsockname()[1]}"


@pytest.mark.parametrize("status", [429, 502, 503])
async def test_another_replica_answers_for_one_that_cannot(status: int) -> None:
    away = ("retry-after", "30")
    async with (
        mock(lambda _: refused(status, "busy", away)) as busy,
        mock(lambda _: said("ok")) as well,
        engine_over(closed_url(), busy.url, well.url) as engine,
    ):
        for i in range(6):
            assert text_of(await heard(engine, request(cache_key=f"ann/{i}"))) == "ok"
    if status != 502:
        assert len(busy.asked) <= 1, "Retry-After is kept"


async def test_retry_after_is_waited_for_when_it_is_short() -> None:
    replies = [refused(503, "busy", ("retry-after", "0.2")), said("ok")]

    def script(asked: Asked) -> Reply:
        return replies.pop(0)

    started = asyncio.get_running_loop().time()
    async with mock(script) as up, engine_over(up.url) as engine:
        assert text_of(await heard(engine)) == "ok"
    assert asyncio.get_running_loop().time() - started >= 0.2


async def test_a_long_retry_after_is_the_caller_s_to_wait_for() -> None:
    reply = refused(429, "busy", ("retry-after", "42"))
    async with mock(lambda _: reply) as up, engine_over(up.url) as engine:
        for _ in range(2):
            with pytest.raises(EngineBusy) as busy:
                await heard(engine)
            assert 40 < busy.value.retry_after_s <= 42
    assert len(up.asked) == 1


async def test_nothing_is_tried_again_once_it_was_heard() -> None:
    replies = [Reply(steps=sse(delta("He"), {"error": {"message": "lost"}})), said("ok")]
    async with mock(lambda _: replies.pop(0)) as up, engine_over(up.url) as engine:
        with pytest.raises(EngineLost):
            await heard(engine)
    assert len(up.asked) == 1


async def test_a_server_that_fails_is_left_alone_for_a_while() -> None:
    async with mock(lambda _: refused(500, "boom")) as up, engine_over(up.url) as engine:
        for _ in range(3):
            with pytest.raises(EngineLost):
                await heard(engine)
        with pytest.raises(EngineBusy):
            await heard(engine)
        assert (await engine.info()).status == "degraded"
    assert len(up.asked) == 3


async def test_a_session_stays_with_its_replica() -> None:
    async with (
        mock(lambda _: said("a")) as one,
        mock(lambda _: said("b")) as other,
        engine_over(one.url, other.url) as engine,
    ):
        for i in range(12):
            answers = [
                text_of(await heard(engine, request(5 + j, cache_key=f"ann/{i}"))) for j in range(2)
            ]
            assert len(set(answers)) == 1
    assert min(len(one.asked), len(other.asked)) > 0


async def test_a_first_byte_later_than_the_pace_allows_ends_the_request() -> None:
    slow = Reply(steps=sse(delta("x")), before_s=30)
    async with mock(lambda _: slow) as up, engine_over(up.url) as engine:
        assert isinstance(engine, Fleet)
        for replica in engine.replicas:
            replica.pace = Pace(PaceSettings(least_s=0.2))
        with pytest.raises(RequestExpired, match="said nothing for"):
            await heard(engine)
        await asyncio.sleep(0.05)
        assert len(up.aborted_at) == 1


PHASES = {
    "before the first byte": Reply(before_s=30),
    "before the first event": Reply(steps=[b": hello\n\n", 30.0]),
    "mid-stream": Reply(steps=[*sse(delta("x")), 30.0]),
}


@pytest.mark.parametrize("reply", PHASES.values(), ids=PHASES)
async def test_closing_an_answer_closes_the_upstream_connection(reply: Reply) -> None:
    loop = asyncio.get_running_loop()
    async with mock(lambda _: reply) as up, engine_over(up.url) as engine:

        async def listen() -> None:
            async with aclosing(engine.generate(request())) as events:
                async for _ in events:
                    pass

        task = asyncio.create_task(listen())
        await asyncio.sleep(0.15)
        assert up.asked
        left_at = loop.time()
        task.cancel()
        while not up.aborted_at:
            assert loop.time() - left_at < 1
            await asyncio.sleep(0.005)
        assert up.aborted_at[0] - left_at < 0.25
        assert (await engine.info()).load.running == 0
