"""Runs an ASGI app on a listening socket until a signal or the lifeline says stop."""

import argparse
import asyncio
import logging
import signal
import socket
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import uvicorn
from starlette.types import ASGIApp

from gateway.cli import lifeline
from gateway.cli.preflight import listen_or_refuse
from gateway.logs import FieldsFormatter, JsonLines, RequestIdFilter
from gateway.together import beside


class Server(uvicorn.Server):
    """uvicorn without its signal handling, which would end the process before its parts close."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosting:
    """Serves one app. The first signal lets open streams finish for `drain_s` seconds; a second
    one cuts them. `on_stop` is called at the first, before the streams are waited for.

    With `drain` the app goes on answering until that is done, given `drain_s`. `on_reload` is
    awaited at every SIGHUP.
    """

    listener: socket.socket
    drain_s: float

    async def __call__(
        self,
        app: ASGIApp,
        on_stop: Callable[[], object] = lambda: None,
        *,
        drain: Callable[[float], Awaitable[None]] | None = None,
        on_reload: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        server = Server(
            uvicorn.Config(
                app,
                http="httptools",
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=max(1, round(self.drain_s)) if drain is None else 1,
            )
        )
        stopping = asyncio.Event()

        async def drained() -> None:
            await stopping.wait()
            if drain is not None:
                await drain(self.drain_s)
            server.should_exit = True

        with stopped_by_signals(server, on_stop, stopping), reloaded_by_signal(on_reload):
            async with beside(drained()):
                await server.serve(sockets=[self.listener])


@contextmanager
def reloaded_by_signal(on_reload: Callable[[], Awaitable[None]] | None) -> Iterator[None]:
    """SIGHUP, which ends a process by default, is left alone when there is nothing to reload."""
    if on_reload is None:
        yield
        return
    loop = asyncio.get_running_loop()
    running: set[asyncio.Future[None]] = set()

    def reload() -> None:
        task = asyncio.ensure_future(on_reload())
        running.add(task)
        task.add_done_callback(running.discard)

    loop.add_signal_handler(signal.SIGHUP, reload)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGHUP)


@contextmanager
def stopped_by_signals(
    server: Server, on_stop: Callable[[], object], stopping: asyncio.Event
) -> Iterator[None]:
    loop = asyncio.get_running_loop()

    def stop() -> None:
        if stopping.is_set():
            server.should_exit = server.force_exit = True
        else:
            on_stop()
            stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


def run(work: Coroutine[None, None, None]) -> None:
    """On uvloop where it is installed: short prompts are answered a tenth faster, and the worker
    leaves more of the processor to its embedder."""
    try:
        import uvloop
    except ImportError:
        asyncio.run(work)
    else:
        uvloop.run(work)


def add_arguments(parser: argparse.ArgumentParser, *, default_port: int) -> None:
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=default_port)
    parser.add_argument("--fd", type=int, help="serve this inherited listening socket instead")
    parser.add_argument(
        "--lifeline", action="store_true", help="stop when standard input ends (`ringway up`)"
    )


def hosting(args: argparse.Namespace, *, drain_s: float, log_format: str = "text") -> Hosting:
    """Open what the arguments name, and start logging. Raises Refusal for a taken port."""
    start_logging(log_format)
    if args.lifeline:
        lifeline.hold()
    if args.fd is not None:
        return Hosting(listener=socket.socket(fileno=args.fd), drain_s=drain_s)
    return Hosting(listener=listen_or_refuse(args.host, args.port), drain_s=drain_s)


def start_logging(log_format: str) -> None:
    """The one place that touches handlers. Prompt text is never logged by anybody."""
    handler = logging.StreamHandler()
    handler.addFilter(RequestIdFilter())
    handler.setFormatter(JsonLines() if log_format == "json" else FieldsFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    # One line per health check and search would bury the rest.
    logging.getLogger("httpx").setLevel(logging.WARNING)
