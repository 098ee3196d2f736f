"""Builds the parts of a gateway from its settings; the only place that chooses implementations."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Protocol

import httpx
from starlette.types import ASGIApp

from engines.api import Engine
from engines.face.client import RemoteEngine
from gateway.app import create_app
from gateway.auth import KeyRing
from gateway.batches.sql import SqlBatches
from gateway.batches.wiring import running_batches
from gateway.metrics import Metrics
from gateway.metrics_now import watch
from gateway.parts import Parts
from gateway.policy import load_policy
from gateway.prompt.compiled.compiling import preload
from gateway.responses.sql import SqlResponses
from gateway.settings import GatewaySettings
from gateway.stored.sql import SqlChats
from gateway.tables import metadata
from gateway.telemetry.api import Tracing
from gateway.tenancy.wiring import database_url, open_tenancy
from gateway.upstreams.wiring import open_upstreams
from ingest.client import RemoteSearcher
from ingest.database import Database
from ingest.embeddings_client import RemoteEmbeddings
from ingest.library_wiring import open_library


class Serve(Protocol):
    """Hosts an app until the process is told to stop: then `drain` ends what runs, in so many
    seconds. `on_reload` reads again what the operator changed."""

    def __call__(
        self,
        app: ASGIApp,
        *,
        drain: Callable[[float], Awaitable[None]],
        on_reload: Callable[[], Awaitable[None]],
    ) -> Coroutine[None, None, None]: ...


async def serve_gateway(settings: GatewaySettings, serve: Serve) -> None:
    """Serve a gateway. Raises what `open_parts` raises, before anything is served."""
    async with open_parts(settings) as parts:
        preload()
        app = create_app(parts)
        async with running_batches(parts, app):
            await serve(app, drain=parts.drain.finish, on_reload=parts.board.reload)


@asynccontextmanager
async def open_parts(settings: GatewaySettings) -> AsyncIterator[Parts]:
    """Parts over a remote engine and the worker's data. Neither needs to answer yet.

    Raises ValueError, with a sentence for people, when the policy or an upstream's tokenizer is
    refused.
    """
    policy = load_policy(settings.policy)
    metrics = Metrics()
    async with (
        httpx.AsyncClient(trust_env=False) as client,
        RemoteEngine(settings.engine) as engine,
        _models(settings) as models,
        open_library(
            settings.data_dir,
            searcher=RemoteSearcher(settings.ingest, client),
            database_url=settings.database_url,
            blobs_url=settings.blobs_url,
            max_file_bytes=settings.max_upload_bytes,
        ) as library,
        _tables(settings) as database,
        _tracing(settings) as tracing,
        open_tenancy(settings, policy, clock=time.time, refused=metrics.refused) as tenancy,
    ):
        parts = Parts(
            engine=next(iter(models.values()), engine),
            models=models,
            library=library,
            policy=policy,
            keys=KeyRing(settings.api_keys),
            issued=tenancy.issued,
            admin_key=settings.admin_key,
            board=tenancy.board,
            accounts=tenancy.accounts,
            metrics=metrics,
            tracing=tracing,
            embeddings=RemoteEmbeddings(settings.ingest, client),
            chats=SqlChats(database),
            responses=SqlResponses(database),
            response_days=settings.response_days,
            batches=SqlBatches(database),
            max_body_bytes=settings.max_body_bytes,
            max_upload_bytes=settings.max_upload_bytes,
            keep_alive_s=settings.keep_alive_s,
        )
        watch(metrics.registry, drain=parts.drain, accounts=parts.accounts, models=models)
        yield parts


@asynccontextmanager
async def _tables(settings: GatewaySettings) -> AsyncIterator[Database]:
    """Responses and batches lie beside what ingest keeps."""
    database = await Database.connect(database_url(settings), metadata)
    try:
        yield database
    finally:
        await database.aclose()


@asynccontextmanager
async def _tracing(settings: GatewaySettings) -> AsyncIterator[Tracing | None]:
    if not settings.is_traced:
        yield None
        return
    try:
        from gateway.telemetry.otel import open_tracing
    except ImportError as error:
        raise ValueError(f"traces need ringway[otel] ({error})") from error
    async with open_tracing() as tracing:
        yield tracing


@asynccontextmanager
async def _models(settings: GatewaySettings) -> AsyncIterator[Mapping[str, Engine]]:
    if settings.upstreams is None:
        yield {}
        return
    async with open_upstreams(settings.upstreams) as models:
        yield models
