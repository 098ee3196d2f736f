import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx
import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from engines.api import EngineLost
from engines.fake import FakeSettings
from gateway.policy import AutoPolicy, Policy
from gateway.settings import GatewaySettings
from gateway.telemetry.otel import OtelTracing, open_tracing
from tests.gateway import plain_http
from tests.gateway.fakes import BpeEngine, Running, Start, bpe_say, ids_of, paragraphs
from tests.gateway.test_cancellation import waited_for

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE_ID}-00f067aa0ba902b7-01"


class Traced:
    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracing = OtelTracing(provider.get_tracer("test"))

    def spans(self) -> dict[str, ReadableSpan]:
        return {span.name: span for span in self.exporter.get_finished_spans()}


def ask(gateway: Running, text: str, **more: object) -> httpx.Response:
    body = {"model": "fake", "messages": [{"role": "user", "content": text}], **more}
    url = f"{gateway.url}/v1/chat/completions"
    return plain_http.post(url, json=body, headers={"traceparent": PARENT}, timeout=15)


@pytest.mark.parametrize("stream", [True, False])
def test_a_request_is_a_span_with_its_phases_inside(start: Start, stream: bool) -> None:
    traced = Traced()
    settings = FakeSettings(prefill_chunk_tokens=16, prefill_delay_s=0.02)
    words = "one two three"
    engine = BpeEngine(bpe_say(words), settings)
    gateway = start(engine, tracing=traced.tracing)
    assert ask(gateway, "word " * 40, stream=stream).status_code == 200
    waited_for(lambda: "chat fake" in traced.spans(), 5)  # it ends after its last byte
    spans = traced.spans()
    phases = {"ringway.count", "ringway.route", "ringway.queue", "ringway.prefill"}
    phases.add("ringway.prefill.chunk")
    assert set(spans) == {"chat fake", "ringway.decode", *phases}
    root = spans["chat fake"]
    told = dict(root.attributes or {})
    assert told["gen_ai.operation.name"] == "chat"
    assert told["gen_ai.usage.output_tokens"] == len(ids_of(words))
    assert told["gen_ai.usage.input_tokens"] == len(engine.requests[0].prompt_ids)
    assert told["http.response.status_code"] == 200
    chunks = [span for span in traced.exporter.get_finished_spans() if "chunk" in span.name]
    assert len(chunks) >= 3
    done = [dict(chunk.attributes or {})["ringway.done_tokens"] for chunk in chunks]
    assert done[-1] == len(engine.requests[0].prompt_ids)
    assert all((one.end_time or 0) - (one.start_time or 0) == 20_000_000 for one in chunks)
    assert told["ringway.outcome"] == "finished"
    assert root.context is not None
    assert root.parent is not None
    assert f"{root.parent.span_id:016x}" == "00f067aa0ba902b7"
    for span in spans.values():
        assert span.context is not None
        assert f"{span.context.trace_id:032x}" == TRACE_ID
        assert span is root or (span.parent and span.parent.span_id == root.context.span_id)
        assert span.start_time is not None
        assert span.end_time is not None
        assert (root.start_time or 0) - 10**7 <= span.start_time <= span.end_time
        assert span.end_time <= (root.end_time or 0) + 10**7
    sent = engine.requests[0].traceparent
    assert sent == f"00-{TRACE_ID}-{root.context.span_id:016x}-01"


def test_a_search_and_a_failure_are_told(start: Start) -> None:
    traced = Traced()
    policy = Policy(auto=AutoPolicy(full_max_tokens=10, hierarchical_max_tokens=20))
    failing = FakeSettings(failure=EngineLost("gone"), fails_after=2)
    gateway = start(BpeEngine(bpe_say("a b c d"), failing), policy, tracing=traced.tracing)
    text = paragraphs(["The zebra lives in Lisbon."], 60) + "\n\nWhere does the zebra live?"
    assert ask(gateway, text, fidelity="retrieval").json()["error"]["code"] == "engine_lost"
    spans = traced.spans()
    assert dict(spans["ringway.decode"].attributes or {})["gen_ai.usage.output_tokens"] == 2
    root = spans["chat fake"]
    assert dict(root.attributes or {})["http.response.status_code"] == 502
    assert not root.status.is_ok


@contextmanager
def collector() -> Iterator[tuple[str, list[bytes]]]:
    """Somebody who takes OTLP over HTTP."""
    bodies: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            return None

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1/traces", bodies
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def test_spans_go_out_when_the_gateway_closes(tmp_path: Path) -> None:
    with collector() as (url, bodies):
        async with open_tracing(OTLPSpanExporter(endpoint=url)) as tracing:
            trace = tracing.begin("POST", "/v1/x", {"traceparent": PARENT})
            trace.span("ringway.count", 1.0, 2.0, {"ringway.prompt_tokens": 7})
            trace.end(status=200, error="")
        assert b"ringway.count" in b"".join(bodies)
        assert bytes.fromhex(TRACE_ID) in b"".join(bodies)


def test_nobody_traces_unless_told_where_to() -> None:
    assert not GatewaySettings.from_environ({}).is_traced
    named = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}
    assert GatewaySettings.from_environ(named).is_traced
