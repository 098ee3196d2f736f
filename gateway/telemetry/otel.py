"""Traces over OpenTelemetry, exported by OTLP over HTTP; the only module that imports it.

Names follow the GenAI semantic conventions; what they do not name begins with `ringway.`.
The SDK itself reads OTEL_* from the environment.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from gateway.telemetry.api import Attributes, Mark

PROPAGATOR = TraceContextTextMapPropagator()
SERVER_ERROR = 500


class OtelTracing:
    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def begin(self, method: str, path: str, headers: Mapping[str, str]) -> "OtelTrace":
        span = self._tracer.start_span(
            f"{method} {path}",
            context=PROPAGATOR.extract(headers),
            kind=SpanKind.SERVER,
            attributes={"http.request.method": method, "url.path": path},
        )
        return OtelTrace(self._tracer, span)


class OtelTrace:
    def __init__(self, tracer: Tracer, span: Span) -> None:
        self._tracer = tracer
        self._span = span
        self._context = set_span_in_context(span)
        self._epoch_ns = time.time_ns() - round(time.monotonic() * 1e9)

    @property
    def traceparent(self) -> str:
        carrier: dict[str, str] = {}
        PROPAGATOR.inject(carrier, self._context)
        return carrier.get("traceparent", "")

    def name(self, name: str) -> None:
        self._span.update_name(name)

    def tell(self, attributes: Attributes) -> None:
        self._span.set_attributes(dict(attributes))

    def span(
        self,
        name: str,
        start_s: float,
        end_s: float,
        attributes: Attributes,
        marks: Sequence[Mark] = (),
    ) -> None:
        span = self._tracer.start_span(
            name,
            context=self._context,
            attributes=dict(attributes),
            start_time=self._unix_ns(start_s),
        )
        for mark in marks:
            span.add_event(mark.name, dict(mark.attributes), self._unix_ns(mark.at_s))
        span.end(self._unix_ns(max(start_s, end_s)))

    def end(self, *, status: int, error: str) -> None:
        self._span.set_attribute("http.response.status_code", status)
        if error:
            self._span.set_attribute("error.type", error)
        if error or status >= SERVER_ERROR:
            self._span.set_status(Status(StatusCode.ERROR))
        self._span.end()

    def _unix_ns(self, at_s: float) -> int:
        return self._epoch_ns + round(at_s * 1e9)


@asynccontextmanager
async def open_tracing(exporter: SpanExporter | None = None) -> AsyncIterator[OtelTracing]:
    """Spans go out in batches from a thread, the last ones when the block ends."""
    provider = TracerProvider(resource=Resource.create({"service.name": "ringway-gateway"}))
    provider.add_span_processor(BatchSpanProcessor(exporter or OTLPSpanExporter()))
    try:
        yield OtelTracing(provider.get_tracer("ringway.gateway"))
    finally:
        await asyncio.to_thread(provider.shutdown)
