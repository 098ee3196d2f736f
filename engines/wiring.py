"""Builds an engine from its parts and runs it until told to stop; decides nothing else."""

import asyncio
import logging
import secrets
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Protocol

import psutil
from starlette.types import ASGIApp

from engines.config import EngineConfig
from engines.face.server import create_face
from engines.gang.launcher import ExternalLauncher, ForkLauncher, Launcher, RankDoor
from engines.gang.limits import GangLimits
from engines.gang.supervisor import Supervisor, SupervisorParts
from engines.memory import (
    free_gpu_bytes,
    gpu_kv_budget_tokens,
    kv_budget_tokens,
    kv_bytes_per_token,
)
from engines.models.folder import ModelFolder, read_folder

logger = logging.getLogger(__name__)


class Serve(Protocol):
    def __call__(self, app: ASGIApp, on_stop: Callable[[], object]) -> Coroutine[None, None, None]:
        """Host the app until the process is told to stop, and tell `on_stop` of that at once."""
        ...


CGROUP = Path("/sys/fs/cgroup")
"""Version 2, as a container sees its own."""


def build_supervisor(
    config: EngineConfig,
    *,
    log: Path | None = None,
    launcher: Launcher | None = None,
    door: RankDoor | None = None,
) -> Supervisor:
    """An engine that is not running yet; forks its ranks on this host unless told otherwise.

    With a `door` it waits there for ranks that something else starts. Raises ModelMissing or
    TooLittleMemory, and ValueError for a door without a KV budget and for GPUs that are missing.
    """
    folder = read_folder(config.model_dir)
    limits = GangLimits.of(
        config,
        vocab_size=folder.shape.vocab_size,
        window_tokens=folder.shape.window_tokens,
        kv_budget_tokens=(
            local_kv_budget(config, folder) if door is None else _given_budget(config, folder)
        ),
    )
    at = door or RankDoor(host="127.0.0.1", port=0, token=secrets.token_hex(16))
    return Supervisor(
        SupervisorParts(
            config=config,
            limits=limits,
            kv_bytes_per_token=kv_bytes_per_token(folder.shape, config.dtype),
            tokenizer=folder.tokenizer,
            launcher=launcher or (ExternalLauncher() if door else fork_launcher(config, folder)),
            door_host=at.host,
            door_port=at.port,
            token=at.token,
            log=log,
        )
    )


def local_kv_budget(config: EngineConfig, folder: ModelFolder) -> int:
    """KV tokens over all ranks of a gang on this host, from its memory or that of its GPUs.

    Raises TooLittleMemory, and ValueError where GPUs are missing.
    """
    if config.device == "cpu":
        return kv_budget_tokens(folder.shape, config, available_bytes())
    return gpu_kv_budget_tokens(folder.shape, config, free_gpu_bytes(config.ranks))


def _given_budget(config: EngineConfig, folder: ModelFolder) -> int:
    """KV tokens over all ranks; this host's memory says nothing about ranks elsewhere."""
    if config.kv_budget_bytes is None:
        raise ValueError("external ranks need --kv-budget: the KV that all of them hold together")
    return config.kv_budget_bytes // kv_bytes_per_token(folder.shape, config.dtype)


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
    serve: Serve,
    *,
    log: Path | None = None,
    door: RankDoor | None = None,
) -> None:
    """Run an engine while `serve` serves its face.

    The face answers while the ranks still load; `GET /health/ready` tells when they have.
    Raises ModelMissing or TooLittleMemory, and EngineLost when the ranks do not start. No rank
    is left when this returns or raises.
    """
    await run_engine(build_supervisor(config, log=log, door=door), serve)


async def run_engine(supervisor: Supervisor, serve: Serve) -> None:
    """Run a supervisor until `serve` returns or the ranks cannot be started."""
    running = asyncio.ensure_future(supervisor.run())
    serving = asyncio.ensure_future(serve(create_face(supervisor), on_stop=running.cancel))
    try:
        await asyncio.wait((running, serving), return_when=asyncio.FIRST_COMPLETED)
        if running.cancelled():
            # Told to stop: the face still has its clients' failures to send.
            await asyncio.wait((serving,))
    finally:
        running.cancel()
        serving.cancel()
        await asyncio.wait((running, serving))
    if not running.cancelled():
        running.result()
