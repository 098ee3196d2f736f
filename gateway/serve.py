"""Runs the gateway on a socket until it is told to stop; knows uvicorn, builds no parts itself."""

import asyncio
import logging
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from gateway.app import create_app
from gateway.parts import Parts
from gateway.settings import GatewaySettings
from gateway.wiring import open_parts

logger = logging.getLogger(__name__)

BACKLOG = 1024


class Server(uvicorn.Server):
    """uvicorn without its signal handling, which would end the process before parts are closed."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def make_server(parts: Parts, *, drain_s: float) -> Server:
    config = uvicorn.Config(
        create_app(parts),
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_graceful_shutdown=max(1, round(drain_s)),
    )
    return Server(config)


def bind(host: str, port: int) -> socket.socket:
    """A listening socket. Raises OSError when the port is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock


async def serve(settings: GatewaySettings, *, sock: socket.socket | None = None) -> None:
    """Serve until SIGTERM or SIGINT; streams may finish for `drain_s`, a second signal cuts them.

    Raises OSError when the address is taken, and what `open_parts` raises.
    """
    listening = bind(settings.host, settings.port) if sock is None else sock
    try:
        async with open_parts(settings) as parts:
            server = make_server(parts, drain_s=settings.drain_s)
            with _stopped_by_signals(server):
                logger.info("serving", extra={"address": listening.getsockname()[:2]})
                await server.serve(sockets=[listening])
    finally:
        listening.close()


@contextmanager
def _stopped_by_signals(server: Server) -> Iterator[None]:
    loop = asyncio.get_running_loop()

    def stop() -> None:
        server.force_exit = server.should_exit
        server.should_exit = True

    for one in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(one, stop)
    try:
        yield
    finally:
        for one in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(one)
