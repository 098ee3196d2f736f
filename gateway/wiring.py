"""Builds the parts of a gateway from its settings; the only place that chooses implementations."""

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager

import httpx
from starlette.types import ASGIApp

from engines.face.client import RemoteEngine
from gateway.app import create_app
from gateway.auth import KeyRing
from gateway.parts import Parts
from gateway.policy import load_policy
from gateway.settings import GatewaySettings
from ingest.client import RemoteSearcher
from ingest.library_wiring import open_library

Serve = Callable[[ASGIApp], Coroutine[None, None, None]]
"""Hosts an app until the process is told to stop."""


async def serve_gateway(settings: GatewaySettings, serve: Serve) -> None:
    """Serve a gateway. Raises what `open_parts` raises, before anything is served."""
    async with open_parts(settings) as parts:
        await serve(create_app(parts))


@asynccontextmanager
async def open_parts(settings: GatewaySettings) -> AsyncIterator[Parts]:
    """Parts over a remote engine and the worker's data. Neither needs to answer yet.

    Raises ValueError, with a sentence for people, when the policy is refused.
    """
    policy = load_policy(settings.policy)
    async with (
        httpx.AsyncClient(trust_env=False) as client,
        RemoteEngine(settings.engine) as engine,
        open_library(
            settings.data_dir,
            searcher=RemoteSearcher(settings.ingest, client),
            database_url=settings.database_url,
            blobs_url=settings.blobs_url,
            max_file_bytes=settings.max_upload_bytes,
        ) as library,
    ):
        yield Parts(
            engine=engine,
            library=library,
            policy=policy,
            keys=KeyRing(settings.api_keys),
            max_body_bytes=settings.max_body_bytes,
            max_upload_bytes=settings.max_upload_bytes,
            keep_alive_s=settings.keep_alive_s,
        )
