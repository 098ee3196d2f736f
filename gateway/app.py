"""The gateway as an ASGI app over given parts; nothing happens at import."""

from collections.abc import Callable, Sequence

from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from engines.api import EngineError
from gateway.api import GatewayError, InvalidRequest
from gateway.auth import Caller, KeyRing
from gateway.chat import ChatService
from gateway.edge import Edge
from gateway.endpoints.chat import chat_router
from gateway.endpoints.files import files_router
from gateway.endpoints.health import health_router
from gateway.endpoints.metrics import metrics_router
from gateway.endpoints.models import models_router
from gateway.endpoints.uploads import uploads_router
from gateway.endpoints.vector_stores import vector_stores_router
from gateway.endpoints.vector_stores_batches import vector_stores_batches_router
from gateway.endpoints.vector_stores_files import vector_stores_files_router
from gateway.engine_view import EngineView
from gateway.openai.errors import ErrorBody, ErrorObject
from gateway.parts import Parts
from gateway.planner import Planner
from gateway.replies import error_response, json_response
from gateway.routes.task import Means
from ingest.api import IngestError
from retrieval.api import RetrievalError


def create_app(parts: Parts) -> FastAPI:
    planner = _planner(parts)
    app = FastAPI(title="Ringway", docs_url=None, redoc_url=None, redirect_slashes=False)
    keyed = [Depends(_caller(parts.keys))]
    app.include_router(chat_router(parts, ChatService(parts, planner)), dependencies=keyed)
    app.include_router(models_router(parts, planner), dependencies=keyed)
    app.include_router(files_router(parts), dependencies=keyed)
    app.include_router(uploads_router(parts), dependencies=keyed)
    app.include_router(vector_stores_router(parts), dependencies=keyed)
    app.include_router(vector_stores_files_router(parts), dependencies=keyed)
    app.include_router(vector_stores_batches_router(parts), dependencies=keyed)
    app.include_router(health_router(parts, planner))
    app.include_router(metrics_router(parts))
    for kind in (GatewayError, EngineError, IngestError, RetrievalError):
        app.add_exception_handler(kind, _fault)
    app.add_exception_handler(HTTPException, _http_fault)
    app.add_exception_handler(RequestValidationError, _parameter_fault)
    app.add_middleware(Edge, new_id=parts.new_id)
    return app


def _planner(parts: Parts) -> Planner:
    means = Means(
        engine=parts.engine,
        library=parts.library,
        policy=parts.policy,
        monotonic=parts.monotonic,
    )
    view = EngineView(parts.engine, monotonic=parts.monotonic)
    return Planner(view=view, means=means, metrics=parts.metrics)


def _caller(keys: KeyRing) -> Callable[[Request], Caller]:
    def caller(request: Request) -> Caller:
        return keys.caller(request.headers.get("authorization"))

    return caller


async def _fault(request: Request, error: Exception) -> Response:
    return error_response(error)


async def _http_fault(request: Request, error: Exception) -> Response:
    """What Starlette refuses by itself: an unknown URL, a wrong method, a broken form."""
    assert isinstance(error, HTTPException)
    known = {
        404: ("unknown_url", f"Unknown request URL: {request.method} {request.url.path}."),
        405: ("method_not_allowed", f"Not allowed here: {request.method} {request.url.path}."),
    }
    code, message = known.get(error.status_code, ("invalid_request", str(error.detail)))
    body = ErrorBody(
        error=ErrorObject(message=message, type="invalid_request_error", param=None, code=code)
    )
    return json_response(body, status=error.status_code, headers=error.headers)


async def _parameter_fault(request: Request, error: Exception) -> Response:
    """A query or path parameter of the wrong type."""
    assert isinstance(error, RequestValidationError)
    errors: Sequence[dict[str, object]] = error.errors()
    loc = errors[0].get("loc")
    name = str(loc[-1]) if isinstance(loc, tuple) and loc else "request"
    said = str(errors[0].get("msg", "invalid"))
    return error_response(
        InvalidRequest(f"Invalid value for '{name}': {said}.", param=name, code="invalid_value")
    )
