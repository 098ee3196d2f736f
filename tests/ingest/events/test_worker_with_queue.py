"""`ringway ingest --sqs-queue-url`: the whole process, from an upload to S3 to a search."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import httpx
import pytest

from ingest.api import FileRecord, FileStatus
from ingest.client import RemoteSearcher
from ingest.library_wiring import open_library
from retrieval.api import SearchRequest
from tests.ingest.events.cloud import Cloud
from tests.ingest.events.messages_of_s3 import Told, direct
from tests.ingest.house import eventually
from tests.ingest.test_wiring import free_port

TEXT = "The keeper of the lighthouse feeds the gulls with herring every morning."


@pytest.mark.ranks
@pytest.mark.services
@pytest.mark.timeout(240)
async def test_an_object_put_into_s3_is_found_by_meaning(cloud: Cloud, tmp_path: Path) -> None:
    bucket, (url, dead) = cloud.new_bucket(), cloud.new_queue_with_dead_letters(5)
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "gateway", "ingest", "--data-dir", str(tmp_path)),
        *("--port", str(port), "--sqs-queue-url", url),
        env=os.environ | cloud.environment,
    )
    try:
        answer = cloud.s3.put_object(Bucket=bucket, Key="gulls+1.txt", Body=TEXT.encode())
        told = Told(key="gulls+1.txt", size=len(TEXT), etag=answer["ETag"], bucket=bucket)
        cloud.sqs.send_message(QueueUrl=url, MessageBody=direct(told))
        async with httpx.AsyncClient() as http:
            await found_in(tmp_path, RemoteSearcher(f"http://127.0.0.1:{port}", http))
        assert (cloud.depth(url), cloud.depth(dead)) == (0, 0)
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(20):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def found_in(data_dir: Path, searcher: RemoteSearcher) -> None:
    async with open_library(data_dir, searcher=searcher) as library:
        files: list[FileRecord] = []

        async def processed() -> bool:
            page = await library.list(after=None, limit=10, ascending=True, purpose=None)
            files[:] = page.files
            return [file.status for file in files] == [FileStatus.PROCESSED]

        await eventually(processed, timeout_s=180)
        found = await library.search(
            SearchRequest(query="what do the birds eat?", document_ids=[files[0].id])
        )
        assert found.passages[0].text == TEXT


@pytest.mark.services
async def test_a_queue_that_does_not_exist_is_a_sentence_and_an_exit_code(
    cloud: Cloud, tmp_path: Path
) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "gateway", "ingest", "--data-dir", str(tmp_path), "--port", str(free_port())),
        *("--sqs-queue-url", f"{cloud.url}/123456789012/nowhere"),
        env=os.environ | cloud.environment,
        stderr=asyncio.subprocess.PIPE,
    )
    _, stderr = await process.communicate()
    assert process.returncode == 2
    assert b"nowhere cannot be used" in stderr
    assert b"Traceback" not in stderr
