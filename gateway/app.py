"""The gateway as an ASGI app over given parts; nothing happens at import."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import cache, partial

from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from engines.api import EngineError
from gateway.admin.access import AdminDoor
from gateway.api import GatewayError, InvalidRequest
from gateway.auth import Door
from gateway.batches.calls import CALLER
from gateway.chat import ChatService
from gateway.completions import CompletionService
from gateway.drain import DrainLayer
from gateway.edge import Edge
from gateway.embeddings import EmbeddingsService
from gateway.endpoints.admin import admin_router
from gateway.endpoints.batches import batches_router
from gateway.endpoints.chat import chat_router
from gateway.endpoints.completions import completions_router
from gateway.endpoints.embeddings import embeddings_router
from gateway.endpoints.files import files_router
from gateway.endpoints.health import health_router
from gateway.endpoints.metrics import metrics_router
from gateway.endpoints.models import models_router
from gateway.endpoints.responses import responses_router
from gateway.endpoints.stored_chats import stored_chats_router
from gateway.endpoints.tokenize import tokenize_router
from gateway.endpoints.uploads import uploads_router
from gateway.endpoints.vector_stores import vector_stores_router
from gateway.endpoints.vector_stores_batches import vector_stores_batches_router
from gateway.endpoints.vector_stores_files import vector_stores_files_router
from gateway.engine_view import EngineViews
from gateway.openai.errors import ErrorBody, ErrorObject
from gateway.openapi.document import document_of
from gateway.outcomes import concluded
from gateway.parts import Parts
from gateway.planner import Planner
from gateway.replies import error_response, json_response
from gateway.responses.service import ResponsesService
from gateway.routes.task import Means
from gateway.stored.service import StoredChats
from gateway.tenancy import current
from gateway.tenancy.accounts import Accounts
from gateway.tenancy.api import Tab
from ingest.api import IngestError
from retrieval.api import RetrievalError


def create_app(parts: Parts) -> FastAPI:
    app = FastAPI(title="Ringway", docs_url=None, redoc_url=None, redirect_slashes=False)
    planner = _planner(parts)
    _include(app, parts, planner)
    app.include_router(admin_router(parts.board, parts.shapes, AdminDoor(parts.admin_key)))
    app.include_router(health_router(parts, planner))
    app.include_router(metrics_router(parts))
    for kind in (GatewayError, EngineError, IngestError, RetrievalError):
        app.add_exception_handler(kind, _fault)
    app.add_exception_handler(HTTPException, _http_fault)
    app.add_exception_handler(RequestValidationError, _parameter_fault)
    needs_key = not parts.keys.is_open or parts.issued is not None
    document = partial(document_of, app, needs_key=needs_key)
    app.openapi = cache(document)  # type: ignore[method-assign]
    app.add_middleware(DrainLayer, drain=parts.drain)
    app.add_middleware(Edge, new_id=parts.new_id, tracing=parts.tracing)
    return app


def _include(app: FastAPI, parts: Parts, planner: Planner) -> None:
    """What needs a key. Services conclude their requests themselves, other routers do it here."""
    keyed = Depends(_admitted(Door(parts.keys, parts.issued, clock=parts.clock), parts.accounts))
    chat, embeddings = ChatService(parts, planner), EmbeddingsService(parts)
    for router in (
        chat_router(parts, StoredChats(parts, chat)),
        completions_router(parts, CompletionService(chat, planner)),
        responses_router(parts, ResponsesService(parts, chat)),
        embeddings_router(parts, embeddings),
        models_router(parts, planner, embeddings),
    ):
        app.include_router(router, dependencies=[keyed])
    concluded_here = {
        "chat.completions.stored": stored_chats_router(parts),
        "tokenize": tokenize_router(parts, planner),
        "files": files_router(parts),
        "uploads": uploads_router(parts),
        "vector_stores": vector_stores_router(parts),
        "vector_stores.files": vector_stores_files_router(parts),
        "vector_stores.file_batches": vector_stores_batches_router(parts),
    }
    if parts.batches is not None:
        concluded_here["batches"] = batches_router(parts, parts.batches)
    for endpoint, router in concluded_here.items():
        concluding = Depends(_concluding(endpoint, parts))
        app.include_router(router, dependencies=[keyed, concluding])


def _planner(parts: Parts) -> Planner:
    means = Means(
        engine=parts.engine,
        library=parts.library,
        policy=parts.policy,
        monotonic=parts.monotonic,
    )
    views = EngineViews(parts.engine, parts.models, monotonic=parts.monotonic)
    return Planner(
        views=views,
        means=means,
        metrics=parts.metrics,
        board=parts.board,
        accounts=parts.accounts,
        shapes=parts.shapes,
    )


def _admitted(door: Door, accounts: Accounts) -> Callable[[Request], Awaitable[None]]:
    async def admitted(request: Request) -> None:
        """Puts the caller's tab where endpoints, planner and the answer's headers find it."""
        inside = request.scope.get(CALLER)
        tab = Tab(inside or await door.caller(request.headers.get("authorization")))
        request.state.tab, request.state.caller = tab, tab.caller
        current.tab.set(tab)
        await accounts.admit(tab)

    return admitted


def _concluding(endpoint: str, parts: Parts) -> Callable[[Request], AsyncIterator[None]]:
    async def concluding(request: Request) -> AsyncIterator[None]:
        """A log line and a count for each request; around the whole handler."""
        with concluded(endpoint, parts.metrics, parts.monotonic) as fields:
            fields["operation"] = request.scope["route"].name
            yield

    return concluding


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
