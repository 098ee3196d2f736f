import asyncio
import socket
import time
from array import array
from contextlib import aclosing
from dataclasses import replace

import httpx
import pytest

from engines.api import (
    Attention,
    EngineBusy,
    EngineError,
    EngineLost,
    EngineRefused,
    EngineStatus,
    GenerateRequest,
    ProgressEvent,
    PromptTooLong,
    TokenEvent,
)
from engines.face.client import RemoteEngine
from engines.face.wire import encode_request
from engines.fake import FakeEngine, FakeSettings, say
from tests.engines.face.served import remote, serving
from tests.engines.gang.scripted_gang import until

REQUEST = GenerateRequest(request_id="r", prompt_ids=array("i", range(40)), max_new_tokens=9)


async def test_a_client_that_hangs_up_while_the_engine_reads_aborts_at_once() -> None:
    engine = FakeEngine(settings=FakeSettings(prefill_delay_s=30))
    async with serving(engine) as url:
        port = httpx.URL(url).port
        assert port is not None
        body = encode_request(REQUEST, 0.0)
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(
            b"POST /v1/generate HTTP/1.1\r\nhost: engine\r\n"
            b"content-length: %d\r\n\r\n" % len(body) + body
        )
        await until(lambda: bool(engine.requests))
        writer.close()
        left_s = time.monotonic()
        await until(lambda: bool(engine.aborted))
        assert time.monotonic() - left_s < 0.25


async def test_a_malformed_body_is_a_400() -> None:
    async with serving(FakeEngine()) as url, httpx.AsyncClient(trust_env=False) as client:
        response = await client.post(url + "/v1/generate", content=b"nonsense")
        assert response.status_code == 400
        assert "error" in response.json()


@pytest.mark.parametrize(
    ("status", "code"),
    [(EngineStatus.READY, 200), (EngineStatus.STARTING, 503), (EngineStatus.DEGRADED, 503)],
)
async def test_readiness_follows_the_ranks_and_liveness_does_not(
    status: EngineStatus, code: int
) -> None:
    engine = FakeEngine(settings=FakeSettings(status=status))
    async with serving(engine) as url, httpx.AsyncClient(trust_env=False) as client:
        assert (await client.get(url + "/health/ready")).status_code == code
        assert (await client.get(url + "/health/live")).status_code == 200


async def test_the_bytes_on_the_wire_are_these() -> None:
    settings = FakeSettings(prefill_chunk_tokens=40)
    engine = FakeEngine(say("hi"), settings)
    async with serving(engine) as url, httpx.AsyncClient(trust_env=False) as client:
        body = encode_request(REQUEST, 0.0)
        response = await client.post(url + "/v1/generate", content=body)
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.content.startswith(
        b'event: progress\ndata: {"done_tokens":40,"total_tokens":40,"times":null}\n\n'
        b'event: token\ndata: {"id":104,"logprob":null,"top_logprobs":[],"index":0}\n\n'
        b'event: token\ndata: {"id":105,"logprob":null,"top_logprobs":[],"index":0}\n\n'
        b'event: finish\ndata: {"reason":"stop","prompt_tokens":40,'
    )


async def test_a_crash_of_the_engine_is_a_lost_engine_not_a_hang() -> None:
    def crash(_: GenerateRequest) -> list[int]:
        raise ZeroDivisionError

    async with remote(FakeEngine(crash)) as engine:
        with pytest.raises(EngineLost):
            async for _ in engine.generate(REQUEST):
                pass


async def test_the_engine_learns_of_the_trace_and_times_what_is_sampled() -> None:
    sampled = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    engine = FakeEngine(say("hi"))
    async with remote(engine) as client:
        for traceparent in (sampled, f"{sampled[:-1]}0", ""):
            asked = replace(REQUEST, traceparent=traceparent)
            async with aclosing(client.generate(asked)) as events:
                first = await anext(events)
                assert isinstance(first, ProgressEvent)
                assert (first.times is not None) == (traceparent == sampled)
    assert engine.requests[0].traceparent == sampled


async def test_an_engine_that_is_not_there_is_lost() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        async with RemoteEngine(f"http://127.0.0.1:{closed.getsockname()[1]}") as engine:
            with pytest.raises(EngineLost):
                await engine.info()
            with pytest.raises(EngineLost):
                await anext(engine.generate(REQUEST))


async def test_a_connection_that_breaks_in_mid_stream_is_a_lost_engine() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
            b'1d\r\nevent: token\ndata: {"id":17}\n\n\r\n'
        )
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, RemoteEngine(f"http://127.0.0.1:{port}") as engine:
        events = engine.generate(REQUEST)
        assert await anext(events) == TokenEvent(17)
        with pytest.raises(EngineLost):
            await anext(events)


async def test_a_caller_may_bring_its_own_http_client() -> None:
    async with serving(FakeEngine()) as url, httpx.AsyncClient(trust_env=False) as client:
        assert (await RemoteEngine(url, client).info()).model == "fake"


@pytest.mark.parametrize(
    ("settings", "request_", "status", "error"),
    [
        (FakeSettings(max_running=0), REQUEST, 503, EngineBusy),
        (FakeSettings(context_tokens=dict.fromkeys(Attention, 10)), REQUEST, 400, PromptTooLong),
        (FakeSettings(), replace(REQUEST, prompt_ids=array("i")), 400, EngineRefused),
        (FakeSettings(failure=EngineLost("gone")), REQUEST, 200, EngineLost),
    ],
)
async def test_what_is_refused_at_once_has_a_status_and_what_fails_later_an_event(
    settings: FakeSettings, request_: GenerateRequest, status: int, error: type[EngineError]
) -> None:
    async with serving(FakeEngine(settings=settings)) as url, RemoteEngine(url) as engine:
        async with httpx.AsyncClient(trust_env=False) as client:
            body = encode_request(request_, 0.0)
            response = await client.post(url + "/v1/generate", content=body)
        assert response.status_code == status
        with pytest.raises(error):
            async for _ in engine.generate(request_):
                pass


async def test_a_busy_engine_says_in_a_header_and_in_its_words_when_to_come_back() -> None:
    engine = FakeEngine(settings=FakeSettings(max_running=0))
    async with serving(engine) as url, RemoteEngine(url) as remote_engine:
        async with httpx.AsyncClient(trust_env=False) as client:
            body = encode_request(REQUEST, 0.0)
            response = await client.post(url + "/v1/generate", content=body)
        assert response.headers["retry-after"] == "1"
        with pytest.raises(EngineBusy) as busy:
            await anext(remote_engine.generate(REQUEST))
        assert (busy.value.queued, busy.value.retry_after_s) == (0, 1.0)


async def test_headers_come_long_before_the_first_event_of_a_slow_prompt() -> None:
    engine = FakeEngine(settings=FakeSettings(prefill_delay_s=30))
    async with (
        serving(engine) as url,
        httpx.AsyncClient(trust_env=False, timeout=5) as client,
        client.stream("POST", url + "/v1/generate", content=encode_request(REQUEST, 0.0)) as got,
    ):
        assert got.status_code == 200
    await until(lambda: bool(engine.aborted))


async def test_a_refused_body_is_a_refusal_for_the_client() -> None:
    class Garbling(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            return httpx.Response(400, content=b"no")

    async with httpx.AsyncClient(transport=Garbling()) as client:
        with pytest.raises(EngineRefused):
            await anext(RemoteEngine("http://engine", client).generate(REQUEST))
