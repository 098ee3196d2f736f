"""/health/live: the process answers. /health/ready: so do its engine and its library."""

import asyncio

from fastapi import APIRouter, Response

from engines.api import EngineError, EngineStatus
from gateway.parts import Parts
from gateway.planner import Planner
from gateway.replies import json_response
from ingest.api import IngestError
from retrieval.api import RetrievalError

READY_WITHIN_S = 2.0


def health_router(parts: Parts, planner: Planner) -> APIRouter:
    router = APIRouter()

    @router.get("/health/live")
    async def live() -> Response:
        return json_response({"status": "live"})

    @router.get("/health/ready")
    async def ready() -> Response:
        if parts.drain.is_draining:
            return json_response({"status": "draining"}, status=503)
        checks = {"engine": await _engine(planner), "library": await _library(parts)}
        is_ready = all(state == "ready" for state in checks.values())
        body = {"status": "ready" if is_ready else "not ready", **checks}
        return json_response(body, status=200 if is_ready else 503)

    return router


async def _engine(planner: Planner) -> str:
    try:
        async with asyncio.timeout(READY_WITHIN_S):
            status = (await planner.info()).status
    except (EngineError, TimeoutError):
        return "unreachable"
    return "ready" if status is EngineStatus.READY else status.value


async def _library(parts: Parts) -> str:
    try:
        async with asyncio.timeout(READY_WITHIN_S):
            await parts.library.list(after=None, limit=1, ascending=False, purpose=None)
    except (IngestError, RetrievalError, TimeoutError):
        return "unreachable"
    return "ready"
