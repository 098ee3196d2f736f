"""Runs an ASGI app on a listening socket until a signal or the lifeline says stop."""

import argparse
import asyncio
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import uvicorn
from starlette.types import ASGIApp

from gateway.cli import lifeline
from gateway.cli.preflight import listen_or_refuse
from gateway.logs import FieldsFormatter, RequestIdFilter


class Server(uvicorn.Server):
    """uvicorn without its signal handling, which would end the process before its parts close."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosting:
    """Serves one app. The first signal lets open streams finish for `drain_s` seconds; a second
    one cuts them. `on_stop` is called at the first, before the streams are waited for."""

    listener: socket.socket
    drain_s: float

    async def __call__(self, app: ASGIApp, on_stop: Callable[[], object] = lambda: None) -> None:
        server = Server(
            uvicorn.Config(
                app,
                http="httptools",
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=max(1, round(self.drain_s)),
            )
        )
        with stopped_by_signals(server, on_stop):
            await server.serve(sockets=[self.listener])


@contextmanager
def stopped_by_signals(server: Server, on_stop: Callable[[], object]) -> Iterator[None]:
    loop = asyncio.get_running_loop()

    def stop() -> None:
        if not server.should_exit:
            on_stop()
        server.force_exit = server.should_exit
        server.should_exit = True

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


def add_arguments(parser: argparse.ArgumentParser, *, default_port: int) -> None:
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=default_port)
    parser.add_argument("--fd", type=int, help="serve this inherited listening socket instead")
    parser.add_argument(
        "--lifeline", action="store_true", help="stop when standard input ends (`ringway up`)"
    )


def hosting(args: argparse.Namespace, *, drain_s: float) -> Hosting:
    """Open what the arguments name, and start logging. Raises Refusal for a taken port."""
    start_logging()
    if args.lifeline:
        lifeline.hold()
    if args.fd is not None:
        return Hosting(listener=socket.socket(fileno=args.fd), drain_s=drain_s)
    return Hosting(listener=listen_or_refuse(args.host, args.port), drain_s=drain_s)


def start_logging() -> None:
    """The one place that touches handlers. Prompt text is never logged by anybody."""
    handler = logging.StreamHandler()
    handler.addFilter(RequestIdFilter())
    handler.setFormatter(FieldsFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    # One line per health check and search would bury the rest.
    logging.getLogger("httpx").setLevel(logging.WARNING)
