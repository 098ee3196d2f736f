"""The official client against a gateway whose library, ledger, worker and index are real."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import openai
import pytest
import uvicorn
from openai import AsyncOpenAI

from gateway.app import create_app
from gateway.parts import Parts
from gateway.policy import Policy
from tests.gateway.fakes import BpeEngine
from tests.ingest.house import House, open_house

LEASE = "\n\n".join(
    f"Clause {n}. The tenant of flat {n} pays {n * 7} euros to keeper{n}." for n in range(200)
)


@dataclass(frozen=True, slots=True)
class Running:
    house: House
    client: AsyncOpenAI


@asynccontextmanager
async def served(house: House) -> AsyncIterator[str]:
    parts = Parts(engine=BpeEngine(), policy=Policy(), library=house.library)
    config = uvicorn.Config(create_app(parts), log_config=None, lifespan="off", ws="none")
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        async with asyncio.TaskGroup() as group:
            group.create_task(server.serve(sockets=[listener]))
            working = group.create_task(house.worker.run())
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
            house.worker.stop()
            await working
            server.should_exit = True


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    async with (
        open_house(tmp_path) as house,
        served(house) as url,
        AsyncOpenAI(base_url=url, api_key="unused", max_retries=0) as client,
    ):
        yield Running(house, client)


@pytest.mark.timeout(60)
async def test_what_is_uploaded_is_found_and_what_is_deleted_is_not(running: Running) -> None:
    client = running.client
    store = await client.vector_stores.create(name="leases")
    files = [(f"{n}.txt", f"{LEASE}\n\nCopy {n}.".encode()) for n in range(3)]
    batch = await client.vector_stores.file_batches.upload_and_poll(
        store.id,
        files=files,
        poll_interval_ms=50,
        chunking_strategy={
            "type": "static",
            "static": {"max_chunk_size_tokens": 100, "chunk_overlap_tokens": 50},
        },
    )
    assert (batch.status, batch.file_counts.completed) == ("completed", 3)
    page = await client.vector_stores.search(store.id, query="what does keeper77 get?")
    best = page.data[0]
    assert "keeper77." in best.content[0].text
    file = await client.vector_stores.files.retrieve(best.file_id, vector_store_id=store.id)
    assert file.usage_bytes >= len(LEASE)
    updated = await client.vector_stores.files.update(
        best.file_id, vector_store_id=store.id, attributes={"chosen": True}
    )
    assert updated.status == "in_progress"
    await client.vector_stores.files.poll(
        best.file_id, vector_store_id=store.id, poll_interval_ms=50
    )
    chosen = await client.vector_stores.search(
        store.id, query="keeper77", filters={"type": "eq", "key": "chosen", "value": True}
    )
    assert {hit.file_id for hit in chosen.data} == {best.file_id}
    await client.files.delete(best.file_id)
    page = await client.vector_stores.search(store.id, query="keeper77", max_num_results=50)
    assert len({hit.file_id for hit in page.data}) == 2
    assert (await client.vector_stores.retrieve(store.id)).file_counts.total == 2
    with pytest.raises(openai.NotFoundError):
        await client.vector_stores.files.retrieve(best.file_id, vector_store_id=store.id)


@pytest.mark.timeout(60)
async def test_parts_are_joined_and_ingested(running: Running) -> None:
    client, raw = running.client, LEASE.encode()
    upload = await client.uploads.upload_file_chunked(
        file=raw,
        filename="lease.txt",
        bytes=len(raw),
        mime_type="text/plain",
        purpose="assistants",
        part_size=3000,
    )
    assert upload.file is not None
    store = await client.vector_stores.create()
    file = await client.vector_stores.files.create_and_poll(
        upload.file.id, vector_store_id=store.id, poll_interval_ms=50
    )
    assert file.status == "completed"
    content = await client.vector_stores.files.content(file.id, vector_store_id=store.id)
    assert content.data[0].text == LEASE
    kept = [blob.key async for blob in running.house.blobs.list("parts/")]
    assert kept == []
