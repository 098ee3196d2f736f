"""GET /metrics in Prometheus' text format, or in OpenMetrics' for whoever asks for that."""

from fastapi import APIRouter, Request, Response
from prometheus_client.exposition import choose_encoder

from gateway.parts import Parts


def metrics_router(parts: Parts) -> APIRouter:
    router = APIRouter()

    @router.get("/metrics")
    async def metrics(request: Request) -> Response:
        encode, media_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(parts.metrics.registry), media_type=media_type)

    return router
