"""GET /metrics in Prometheus' text format."""

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST

from gateway.parts import Parts


def metrics_router(parts: Parts) -> APIRouter:
    router = APIRouter()

    @router.get("/metrics")
    async def metrics() -> Response:
        return Response(parts.metrics.page(), media_type=CONTENT_TYPE_LATEST)

    return router
