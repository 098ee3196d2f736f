"""Batches from upload to output file, with the runner beside the app and real tables."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from openai import AsyncOpenAI, ConflictError, NotFoundError
from openai.types import Batch, BatchRequestCounts

from engines.api import Attention, GenerateRequest
from engines.fake import FakeSettings
from gateway.app import create_app
from gateway.batches.runner import RunnerConfig
from gateway.batches.sql import SqlBatches
from gateway.batches.wiring import running_batches
from gateway.parts import Parts
from gateway.tables import metadata
from ingest.database import Database, sqlite_url
from ingest.fake import FakeLibrary
from ingest.fake_embeddings import fake_embeddings
from tests.contracts.library_benches import Clock
from tests.gateway.fakes import BpeEngine, bpe_say, make_parts, trained
from tests.gateway.tenancy.test_keys import Issued

CHAT: Final = "/v1/chat/completions"
LEASE = "The lease of the lighthouse ends in March. " * 40
RECIPE = "The bread needs an hour in the oven. " * 40

QUICK = RunnerConfig(poll_s=0.02, lease_s=5.0, retry_s=0.01)
WIDE = FakeSettings(context_tokens=dict.fromkeys(Attention, 1_000_000))


@dataclass(slots=True)
class House:
    parts: Parts
    client: AsyncOpenAI

    async def submit(self, lines: Sequence[dict[str, Any] | bytes], endpoint: str = CHAT) -> Batch:
        texts = [one if isinstance(one, bytes) else json.dumps(one).encode() for one in lines]
        file = await self.client.files.create(file=("in.jsonl", b"\n".join(texts)), purpose="batch")
        return await self.client.batches.create(
            input_file_id=file.id,
            endpoint=endpoint,  # type: ignore[arg-type]
            completion_window="24h",
            metadata={"case": "7"},
        )

    async def ended(self, batch: Batch) -> Batch:
        for _ in range(500):
            batch = await self.client.batches.retrieve(batch.id)
            if batch.status in ("completed", "failed", "expired", "cancelled"):
                return batch
            await asyncio.sleep(0.02)
        raise AssertionError(f"the batch did not end: {batch}")

    async def counted(self, batch: Batch, num: int) -> BatchRequestCounts:
        """The counts, once so many lines are done."""
        for _ in range(1000):
            counts = (await self.client.batches.retrieve(batch.id)).request_counts
            if counts is not None and counts.completed >= num:
                return counts
            await asyncio.sleep(0.01)
        raise AssertionError(f"fewer than {num} lines were done")

    async def results(self, file_id: str | None) -> dict[str, Any]:
        if file_id is None:
            return {}
        content = await self.client.files.content(file_id)
        found = [json.loads(line) for line in content.text.splitlines()]
        return {one["custom_id"]: one for one in found}

    def running(self) -> Any:
        return running_batches(self.parts, create_app(self.parts), QUICK)


@asynccontextmanager
async def open_house(folder: Path, engine: BpeEngine, **others: Any) -> AsyncIterator[House]:
    database = await Database.connect(sqlite_url(folder / "gateway.db"), metadata)
    clock = others.pop("clock", Clock())
    parts = make_parts(
        engine,
        library=FakeLibrary(max_file_bytes=1 << 22),
        batches=SqlBatches(database),
        embeddings=fake_embeddings(),
        clock=clock,
        **others,
    )
    transport = httpx.ASGITransport(create_app(parts))
    async with (
        httpx.AsyncClient(transport=transport) as http,
        AsyncOpenAI(
            base_url="http://ringway/v1",
            api_key="x",
            http_client=http,  # type: ignore[arg-type]  # typed as httpx's successor, takes both
        ) as client,
    ):
        yield House(parts, client.with_options(max_retries=0))
    await database.aclose()


async def finished(engine: BpeEngine, num: int) -> None:
    for _ in range(1000):
        if len(engine.finished) >= num:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"only {len(engine.finished)} of {num} lines were answered")


def line(custom_id: str, text: str, **fields: Any) -> dict[str, Any]:
    body = {"model": "fake", "messages": [{"role": "user", "content": text}], **fields}
    return {"custom_id": custom_id, "method": "POST", "url": CHAT, "body": body}


def asked(request: GenerateRequest) -> str:
    text: str = trained().decode(list(request.prompt_ids))
    return text


async def test_every_line_is_answered_under_its_custom_id(tmp_path: Path) -> None:
    async with open_house(tmp_path, BpeEngine(bpe_say("Yes."))) as house:
        batch = await house.submit(
            [line("a", "one"), line("b", "two", temperature=9), line("c", "x", model="other")]
        )
        assert (batch.status, batch.endpoint, batch.metadata) == ("validating", CHAT, {"case": "7"})
        async with house.running():
            batch = await house.ended(batch)
        assert batch.status == "completed"
        assert batch.request_counts is not None
        counts = batch.request_counts
        assert (counts.total, counts.completed, counts.failed) == (3, 1, 2)
        [good] = (await house.results(batch.output_file_id)).values()
        assert (good["custom_id"], good["error"]) == ("a", None)
        assert good["response"]["status_code"] == 200
        assert good["response"]["body"]["choices"][0]["message"]["content"] == "Yes."
        assert good["response"]["request_id"].startswith("req_")
        bad = await house.results(batch.error_file_id)
        assert bad["b"]["response"]["status_code"] == 400
        assert bad["b"]["response"]["body"]["error"]["param"] == "temperature"
        assert bad["c"]["response"]["status_code"] == 404
        output = await house.client.files.retrieve(str(batch.output_file_id))
        assert (output.purpose, output.status) == ("batch_output", "processed")


async def test_lines_of_one_document_run_next_to_each_other_in_one_session(tmp_path: Path) -> None:
    engine = BpeEngine(settings=WIDE)
    lines = [
        line("r1", RECIPE + "How hot?"),
        line("l1", LEASE + "Who?"),
        line("x", "Short."),
        line("r2", RECIPE + "How long?"),
        line("l2", LEASE + "When?"),
        line("l3", LEASE + "Where?"),
    ]
    async with open_house(tmp_path, engine) as house, house.running():
        batch = await house.ended(await house.submit(lines))
        results = await house.results(batch.output_file_id)
    assert set(results) == {"r1", "r2", "l1", "l2", "l3", "x"}
    texts = [asked(request) for request in engine.requests]
    kinds = ["r" if RECIPE[:99] in t else "l" if LEASE[:99] in t else "x" for t in texts]
    assert kinds == ["r", "r", "l", "l", "l", "x"]
    assert ["How hot?" in texts[0], "Who?" in texts[2]] == [True, True]
    keys = [request.cache_key for request in engine.requests]
    assert len({*keys[:2]}) == len({*keys[2:5]}) == 1
    assert len({*keys}) == 3
    assert {request.service_tier for request in engine.requests} == {"flex"}


async def test_what_a_stopped_process_left_is_finished_by_the_next_and_no_line_twice(
    tmp_path: Path,
) -> None:
    engine = BpeEngine(settings=replace(WIDE, token_delay_s=0.02))
    async with open_house(tmp_path, engine) as house:
        batch = await house.submit([line(f"n{i}", f"number {i}") for i in range(12)])
        async with house.running():
            await house.counted(batch, 3)
        num_before = (await house.counted(batch, 3)).completed
        assert num_before < 12
        num_asked = len(engine.requests)
        async with house.running():
            batch = await house.ended(batch)
        assert batch.request_counts is not None
        assert batch.request_counts.completed == 12
        assert len(engine.requests) - num_asked == 12 - num_before
        content = await house.client.files.content(str(batch.output_file_id))
        ids = [json.loads(one)["custom_id"] for one in content.text.splitlines()]
        assert ids == [f"n{i}" for i in range(12)]


async def test_a_cancelled_batch_keeps_what_was_done_and_frees_the_engine(tmp_path: Path) -> None:
    engine = BpeEngine(settings=replace(WIDE, token_delay_s=0.05))
    async with open_house(tmp_path, engine) as house, house.running():
        batch = await house.submit([line(f"n{i}", f"number {i}") for i in range(30)])
        await finished(engine, 4)
        assert (await house.client.batches.cancel(batch.id)).status == "cancelling"
        batch = await house.ended(batch)
        assert batch.status == "cancelled"
        assert batch.cancelled_at is not None
        done = await house.results(batch.output_file_id)
        undone = await house.results(batch.error_file_id)
        assert len(done) >= 4
        assert len(done) + len(undone) == 30
        assert {one["error"]["code"] for one in undone.values()} == {"batch_cancelled"}
        assert engine.aborted
        with pytest.raises(ConflictError):
            await house.client.batches.cancel(batch.id)


async def test_a_batch_whose_window_ends_says_which_lines_did_not_run(tmp_path: Path) -> None:
    clock = Clock()
    engine = BpeEngine(settings=replace(WIDE, token_delay_s=0.05))
    async with open_house(tmp_path, engine, clock=clock) as house, house.running():
        batch = await house.submit([line(f"n{i}", f"number {i}") for i in range(30)])
        await finished(engine, 2)
        clock.now += 25 * 3600
        batch = await house.ended(batch)
        assert batch.status == "expired"
        undone = await house.results(batch.error_file_id)
        assert {one["error"]["code"] for one in undone.values()} == {"batch_expired"}
        assert len(undone) + len(await house.results(batch.output_file_id)) == 30


@pytest.mark.parametrize("end", ["revoked", "expired", "deleted"])
async def test_a_batch_stops_when_its_key_ends(tmp_path: Path, end: str) -> None:
    clock, issued = Clock(), Issued()
    headers = issued.issue("a")
    engine = BpeEngine(settings=replace(WIDE, token_delay_s=0.05))
    async with open_house(tmp_path, engine, clock=clock, issued=issued) as house:
        house.client = house.client.with_options(api_key=headers["authorization"].split()[1])
        other = house.client.with_options(
            api_key=issued.issue("a")["authorization"].split()[1], max_retries=0
        )
        async with house.running():
            batch = await house.submit([line(f"n{i}", f"number {i}") for i in range(30)])
            await finished(engine, 2)
            [digest, key] = next(iter(issued.keys.items()))
            if end == "deleted":
                del issued.keys[digest]
            else:
                changes = {"revoked_at": clock.now} if end == "revoked" else {"expires_at": 1}
                issued.keys[digest] = replace(key, **changes)
            house.client = other
            batch = await house.ended(batch)
            num_asked = len(engine.requests)
            await asyncio.sleep(0.1)
        assert batch.status == "cancelled"
        assert batch.errors is not None
        assert [one.code for one in batch.errors.data or []] == ["invalid_api_key"]
        undone = await house.results(batch.error_file_id)
        assert len(undone) >= 20
        assert len(undone) + len(await house.results(batch.output_file_id)) == 30
        assert {one["error"]["code"] for one in undone.values()} == {"invalid_api_key"}
        assert "was revoked or has expired" in undone["n29"]["error"]["message"]
        assert len(engine.requests) == num_asked
        assert len(engine.finished) + len(engine.aborted) == num_asked


async def test_an_input_with_a_bad_line_fails_before_anything_runs(tmp_path: Path) -> None:
    engine = BpeEngine()
    async with open_house(tmp_path, engine) as house, house.running():
        batch = await house.ended(await house.submit([line("a", "one"), b"{"]))
        assert batch.status == "failed"
        assert batch.errors is not None
        assert batch.errors.data is not None
        [error] = batch.errors.data
        assert (error.code, error.line) == ("invalid_json_line", 2)
        assert engine.requests == []


async def test_a_line_that_finds_the_engine_busy_is_asked_again(tmp_path: Path) -> None:
    engine = BpeEngine(settings=replace(WIDE, max_running=1, token_delay_s=0.005))
    async with open_house(tmp_path, engine) as house, house.running():
        batch = await house.ended(await house.submit([line(f"n{i}", "x") for i in range(4)]))
        assert batch.request_counts is not None
        assert (batch.request_counts.completed, batch.request_counts.failed) == (4, 0)


@pytest.mark.parametrize(
    ("endpoint", "body"),
    [
        ("/v1/responses", {"model": "fake", "input": "hi"}),
        ("/v1/embeddings", {"model": "fake-embedder", "input": ["a", "b"]}),
    ],
)
async def test_other_endpoints_run_too(tmp_path: Path, endpoint: str, body: dict[str, Any]) -> None:
    async with open_house(tmp_path, BpeEngine()) as house, house.running():
        one = {"custom_id": "a", "method": "POST", "url": endpoint, "body": body}
        batch = await house.ended(await house.submit([one], endpoint))
        results = await house.results(batch.output_file_id)
        assert results["a"]["response"]["body"]["object"] in ("response", "list")


async def test_batches_are_listed_newest_first_and_only_ones_own_file_is_run(
    tmp_path: Path,
) -> None:
    async with open_house(tmp_path, BpeEngine()) as house:
        made = [(await house.submit([line("a", "x")])).id for _ in range(3)]
        page = await house.client.batches.list(limit=2)
        assert [one.id for one in page.data] == made[:0:-1]
        assert page.has_more
        rest = await house.client.batches.list(after=made[1])
        assert [one.id for one in rest.data] == made[:1]
        for call in (house.client.batches.retrieve, house.client.batches.cancel):
            with pytest.raises(NotFoundError):
                await call("batch_nobody")
        with pytest.raises(NotFoundError) as missing:
            await house.client.batches.create(
                input_file_id="file-nobody", endpoint=CHAT, completion_window="24h"
            )
        assert missing.value.code == "file_not_found"
