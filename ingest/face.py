"""The worker's face on loopback: searches, vectors, nudges, health, metrics. Knows no parser."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ingest.api import InlineSearch
from ingest.client import Fault
from ingest.embeddings_api import Embeddings, TextTooLong
from ingest.embeddings_wire import WireTooLong, decode_texts, encode_vectors
from ingest.jobs import JobState
from ingest.library import InlineSide
from ingest.wire import decode_search
from retrieval.api import QueryRejected, Searcher, SearchResult, SearchUnavailable

MAX_BODY_BYTES = 256 << 20

Question = TypeVar("Question")

_inline = msgspec.json.Decoder(InlineSearch)


class Refusal(Exception):
    """An answer that is not a result."""

    def __init__(self, status: int, fault: Fault) -> None:
        super().__init__(fault.message)
        self.status = status
        self.fault = fault


@dataclass(slots=True)
class Services:
    """What the face hands requests to; the three services are None until models are loaded."""

    nudge: Callable[[], None]
    depth: Callable[[], Awaitable[dict[JobState, int]]]
    searcher: Searcher | None = None
    inline: InlineSide | None = None
    embeddings: Embeddings | None = None
    meters: "Meters" = field(default_factory=lambda: Meters())


class Meters:
    """The worker's metrics, all names in one place."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.seconds = Histogram(
            "ringway_search_seconds", "Time of one search", ["kind"], registry=self.registry
        )
        self.failures = Counter(
            "ringway_search_failures",
            "Searches not answered",
            ["kind", "code"],
            registry=self.registry,
        )
        self.jobs = Gauge("ringway_ingest_jobs", "Ingest jobs", ["state"], registry=self.registry)


def create_app(services: Services) -> Starlette:
    face = Face(services)
    return Starlette(
        routes=[
            Route("/v1/search", face.search, methods=["POST"]),
            Route("/v1/search/inline", face.search_inline, methods=["POST"]),
            Route("/v1/embedder", face.embedder),
            Route("/v1/embed", face.embed, methods=["POST"]),
            Route("/v1/nudge", face.nudge, methods=["POST"]),
            Route("/health/live", face.live),
            Route("/health/ready", face.ready),
            Route("/metrics", face.metrics),
        ]
    )


class Face:
    def __init__(self, services: Services) -> None:
        self._services = services

    async def search(self, request: Request) -> Response:
        async def answer() -> SearchResult:
            question = _decoded(await _body(request), decode_search)
            searcher = self._services.searcher
            if searcher is None:
                raise SearchUnavailable("the embedding model is still loading")
            return await searcher.search(question)

        return await self._answered("files", answer)

    async def search_inline(self, request: Request) -> Response:
        async def answer() -> SearchResult:
            question = _decoded(await _body(request), _inline.decode)
            inline = self._services.inline
            if inline is None:
                raise SearchUnavailable("the embedding model is still loading")
            return await inline.search_inline(question)

        return await self._answered("inline", answer)

    async def embedder(self, request: Request) -> Response:
        try:
            return _json(await self._embeddings().facts())
        except SearchUnavailable as error:
            return _told(error)

    async def embed(self, request: Request) -> Response:
        meters = self._services.meters
        try:
            with meters.seconds.labels("embed").time():
                texts = _decoded(await _body(request), decode_texts)
                packed = encode_vectors(await self._embeddings().embed(texts))
            return Response(packed, media_type="application/msgpack")
        except TextTooLong as error:
            return _json(_too_long(error), 400)
        except (Refusal, SearchUnavailable) as error:
            meters.failures.labels("embed", _refusal(error).fault.code).inc()
            return _told(error)

    def _embeddings(self) -> Embeddings:
        if self._services.embeddings is None:
            raise SearchUnavailable("the embedding model is still loading")
        return self._services.embeddings

    async def nudge(self, request: Request) -> Response:
        self._services.nudge()
        return Response(status_code=204)

    async def live(self, request: Request) -> Response:
        return _json({"status": "live"})

    async def ready(self, request: Request) -> Response:
        if self._services.searcher is None:
            return _json({"status": "starting"}, 503)
        return _json({"status": "ready"})

    async def metrics(self, request: Request) -> Response:
        meters = self._services.meters
        for state, count in (await self._services.depth()).items():
            meters.jobs.labels(state).set(count)
        return Response(generate_latest(meters.registry), media_type="text/plain; version=0.0.4")

    async def _answered(self, kind: str, answer: Callable[[], Awaitable[SearchResult]]) -> Response:
        meters = self._services.meters
        try:
            with meters.seconds.labels(kind).time():
                return _json(await answer())
        except (Refusal, QueryRejected, SearchUnavailable) as error:
            refusal = _refusal(error)
        meters.failures.labels(kind, refusal.fault.code).inc()
        return _json(refusal.fault, refusal.status)


def _refusal(error: Refusal | QueryRejected | SearchUnavailable) -> Refusal:
    match error:
        case Refusal():
            return error
        case QueryRejected():
            return Refusal(400, Fault(code="query_rejected", message=str(error)))
        case SearchUnavailable():
            return Refusal(503, Fault(code="search_unavailable", message=str(error)))


def _told(error: Refusal | SearchUnavailable) -> Response:
    refusal = _refusal(error)
    return _json(refusal.fault, refusal.status)


def _too_long(error: TextTooLong) -> WireTooLong:
    return WireTooLong(
        message=str(error), index=error.index, num_tokens=error.num_tokens, limit=error.limit
    )


async def _body(request: Request) -> bytes:
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > MAX_BODY_BYTES:
            raise Refusal(413, Fault(code="too_large", message="the body is too large"))
    return bytes(body)


def _decoded(body: bytes, decode: Callable[[bytes], Question]) -> Question:
    try:
        return decode(body)
    except msgspec.DecodeError as error:
        raise Refusal(400, Fault(code="invalid_request", message=str(error))) from error


def _json(body: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(body), status_code=status, media_type="application/json")
