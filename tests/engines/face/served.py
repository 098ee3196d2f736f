"""A face over an engine on a real socket in this process, for tests."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn

from engines.api import Engine
from engines.face.client import RemoteEngine
from engines.face.server import create_face
from gateway.cli.hosting import Server
from tests.engines.gang.scripted_gang import until


@asynccontextmanager
async def serving(engine: Engine) -> AsyncIterator[str]:
    """The base URL of a face that is up inside."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        server = Server(
            uvicorn.Config(
                create_face(engine),
                log_config=None,
                lifespan="off",
                ws="none",
                timeout_graceful_shutdown=1,
            )
        )
        serving = asyncio.ensure_future(server.serve(sockets=[listener]))
        try:
            await until(lambda: server.started)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            await serving


@asynccontextmanager
async def remote(engine: Engine) -> AsyncIterator[RemoteEngine]:
    async with serving(engine) as url, RemoteEngine(url) as client:
        yield client
