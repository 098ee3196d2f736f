"""The whole worker process with its real model and index, and a library beside it."""

import asyncio
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from starlette.types import ASGIApp

from ingest.api import FileStatus, InlineDocument, InlineSearch
from ingest.client import RemoteSearcher
from ingest.library import LocalLibrary
from ingest.library_wiring import open_library
from ingest.settings import IngestSettings
from ingest.wiring import DataDirBusy, serve_ingest
from retrieval.api import SearchRequest
from tests.ingest.house import eventually, pieces

STORY = (
    "The keeper of the lighthouse feeds the gulls with herring every morning.\n\n"
    "Rent is due on the first of May and amounts to nine hundred guilders."
)

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(150)]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


@asynccontextmanager
async def worker(data_dir: Path, port: int) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "gateway", "ingest", "--lifeline"),
        *("--data-dir", str(data_dir), "--port", str(port)),
        stdin=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@asynccontextmanager
async def library_beside(data_dir: Path, port: int) -> AsyncIterator[LocalLibrary]:
    async with httpx.AsyncClient() as http:
        url = f"http://127.0.0.1:{port}"

        async def ready() -> bool:
            try:
                return (await http.get(f"{url}/health/ready")).status_code == 200
            except httpx.HTTPError:
                return False

        await eventually(ready, timeout_s=60)
        async with open_library(data_dir, searcher=RemoteSearcher(url, http)) as library:
            yield library


async def ingested(library: LocalLibrary) -> str:
    record = await library.add(
        filename="story.txt", purpose="user_data", body=pieces(STORY.encode())
    )

    async def done() -> bool:
        return (await library.get(record.id)).status is FileStatus.PROCESSED

    await eventually(done, timeout_s=30)
    return record.id


async def test_a_worker_serves_survives_its_lifeline_and_obeys_sigterm(tmp_path: Path) -> None:
    port = free_port()
    async with worker(tmp_path, port) as process, library_beside(tmp_path, port) as library:
        file_id = await ingested(library)
        await check_searches(library, file_id)
        with pytest.raises(DataDirBusy):
            await serve_ingest(IngestSettings(data_dir=tmp_path), never)
        assert process.stdin is not None
        process.stdin.close()
        async with asyncio.timeout(15):
            assert await process.wait() == 0
    async with worker(tmp_path, port) as process, library_beside(tmp_path, port) as library:
        await check_searches(library, file_id)
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(15):
            assert await process.wait() == 0


async def check_searches(library: LocalLibrary, file_id: str) -> None:
    found = await library.search(
        SearchRequest(query="what does the bird food consist of?", document_ids=[file_id])
    )
    assert "herring" in found.passages[0].text
    inline = await library.search_inline(
        InlineSearch(documents=[InlineDocument("a", STORY)], query="how much is the rent?")
    )
    assert "guilders" in inline.passages[0].text


async def never(app: ASGIApp) -> None:
    raise AssertionError("a second worker must not serve")
