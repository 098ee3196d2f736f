"""A worker process with its real model and index, and a library beside it, as a gateway has."""

import asyncio
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from os import environ
from pathlib import Path

import httpx

from ingest.client import RemoteSearcher
from ingest.library import LocalLibrary
from ingest.library_wiring import open_library

START_S = 120


@dataclass(frozen=True, slots=True)
class WorkerProcess:
    library: LocalLibrary
    pid: int

    def peak_bytes(self) -> int:
        """The most memory that the worker itself has held; parsers are processes of their own."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) << 10
        raise RuntimeError("this system does not tell the peak of a process")


@asynccontextmanager
async def running_worker(
    data_dir: Path, settings: Mapping[str, str] | None = None
) -> AsyncIterator[WorkerProcess]:
    """`settings` are RINGWAY_INGEST_* variables."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "gateway", "ingest", "--lifeline"),
        *("--data-dir", str(data_dir), "--port", str(port)),
        stdin=asyncio.subprocess.PIPE,
        env={**environ, **(settings or {})},
    )
    url = f"http://127.0.0.1:{port}"
    try:
        async with httpx.AsyncClient() as http:
            await _until_ready(http, url, process)
            async with open_library(data_dir, searcher=RemoteSearcher(url, http)) as library:
                yield WorkerProcess(library, process.pid)
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _until_ready(
    http: httpx.AsyncClient, url: str, process: asyncio.subprocess.Process
) -> None:
    async with asyncio.timeout(START_S):
        while process.returncode is None:
            try:
                if (await http.get(f"{url}/health/ready")).status_code == 200:
                    return
            except httpx.HTTPError:
                pass
            await asyncio.sleep(0.1)
    raise RuntimeError(f"the worker ended with {process.returncode} before it was ready")
