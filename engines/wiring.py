"""Builds an engine from its parts and runs it until told to stop; decides nothing else."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import uvicorn

from engines.config import EngineConfig
from engines.face.server import create_face
from engines.gang.launcher import ForkLauncher, Launcher
from engines.gang.limits import GangLimits
from engines.gang.supervisor import Supervisor, SupervisorParts
from engines.memory import kv_budget_tokens, kv_bytes_per_token
from engines.models.folder import ModelFolder, read_folder

logger = logging.getLogger(__name__)

GRACE_S = 1

CGROUP = Path("/sys/fs/cgroup")
"""Version 2, as a container sees its own."""


class FaceServer(uvicorn.Server):
    """uvicorn without its own ideas about signals: `serve_engine` decides when to stop."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def build_supervisor(
    config: EngineConfig, *, log: Path | None = None, launcher: Launcher | None = None
) -> Supervisor:
    """An engine that is not running yet; forks its ranks on this host unless told otherwise.

    Raises ModelMissing or TooLittleMemory.
    """
    folder = read_folder(config.model_dir)
    budget = kv_budget_tokens(folder.shape, config, available_bytes())
    limits = GangLimits.of(
        config,
        vocab_size=folder.shape.vocab_size,
        window_tokens=folder.shape.window_tokens,
        kv_budget_tokens=budget,
    )
    return Supervisor(
        SupervisorParts(
            config=config,
            limits=limits,
            kv_bytes_per_token=kv_bytes_per_token(folder.shape, config.dtype),
            tokenizer=folder.tokenizer,
            launcher=launcher or fork_launcher(config, folder),
            log=log,
        )
    )


def available_bytes() -> int:
    """Memory that this process may still take: the host's, or less inside a container."""
    host: int = psutil.virtual_memory().available
    try:
        limit = (CGROUP / "memory.max").read_text().strip()
        used = int((CGROUP / "memory.current").read_text())
        stat = (CGROUP / "memory.stat").read_text().split()
    except OSError:
        return host
    if limit == "max":
        return host
    reclaimable = int(stat[stat.index("inactive_file") + 1])
    return min(host, int(limit) - used + reclaimable)


def fork_launcher(config: EngineConfig, folder: ModelFolder) -> ForkLauncher:
    """Ranks with everything that this model's class needs imported before the fork."""
    kind = folder.model_type
    return ForkLauncher(
        preload=(
            "engines.local.executor",
            "transformers.models.auto.modeling_auto",
            f"transformers.models.{kind}.modeling_{kind}",
        ),
        threads_per_rank=config.threads_per_rank,
    )


async def serve_engine(
    config: EngineConfig,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    log: Path | None = None,
    lifeline: bool = False,
    on_listening: Callable[[str, int], None] | None = None,
) -> None:
    """Serve until SIGTERM, SIGINT or, with `lifeline`, the end of standard input.

    The face answers while the ranks still load; `GET /health/ready` tells when they have.
    Raises ModelMissing, TooLittleMemory, OSError for a port that is taken, and EngineLost when
    the ranks do not start. No rank is left when this returns or raises.
    """
    supervisor = build_supervisor(config, log=log)
    with _listening(host, port) as listener:
        if on_listening is not None:
            on_listening(*listener.getsockname()[:2])
        await run_engine(supervisor, listener, lifeline=lifeline)


async def run_engine(
    supervisor: Supervisor, listener: socket.socket, *, lifeline: bool = False
) -> None:
    """Run a supervisor behind its face on a bound socket until told to stop."""
    server = FaceServer(
        uvicorn.Config(
            create_face(supervisor),
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            timeout_graceful_shutdown=GRACE_S,
        )
    )
    stop = _stop_event(lifeline=lifeline)
    running = asyncio.ensure_future(supervisor.run())
    serving = asyncio.ensure_future(server.serve(sockets=[listener]))
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((running, serving, stopping), return_when=asyncio.FIRST_COMPLETED)
    finally:
        running_failed = running.done()
        running.cancel()
        stopping.cancel()
        server.should_exit = True
        await asyncio.wait((running, serving))
    if running_failed:
        running.result()


def _stop_event(*, lifeline: bool) -> asyncio.Event:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if lifeline:
        threading.Thread(target=_watch_lifeline, args=(loop, stop), daemon=True).start()
    return stop


def _watch_lifeline(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    """Standard input ends when the process that holds its other end does, however it dies."""
    while os.read(0, 4096):
        pass
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(stop.set)


def _listening(host: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(128)
    except OSError:
        listener.close()
        raise
    return listener
