"""The contract of `ResponseStore`: in memory, in SQLite, in PostgreSQL."""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy import delete

from gateway.responses.sql import SqlResponses
from gateway.responses.storage import (
    KeptResponse,
    MemoryResponses,
    ResponseMissing,
    ResponseStore,
)
from gateway.tables import metadata, responses
from ingest.database import Database, sqlite_url
from tests.contracts.library_benches import POSTGRES, Clock


@dataclass(frozen=True, slots=True)
class Bench:
    store: ResponseStore
    clock: Clock


@asynccontextmanager
async def in_memory(_: Path) -> AsyncIterator[Bench]:
    clock = Clock()
    yield Bench(MemoryResponses(clock=clock), clock)


@asynccontextmanager
async def in_sqlite(folder: Path) -> AsyncIterator[Bench]:
    clock = Clock()
    database = await Database.connect(sqlite_url(folder / "gateway.db"), metadata)
    yield Bench(SqlResponses(database, clock=clock), clock)
    await database.aclose()


@asynccontextmanager
async def in_postgres(_: Path) -> AsyncIterator[Bench]:
    url = os.environ.get(POSTGRES)
    if url is None:
        pytest.skip(f"{POSTGRES} names no database, such as postgresql+asyncpg://…")
    clock = Clock()
    database = await Database.connect(url, metadata)
    await database.run(lambda connection: connection.execute(delete(responses)))
    yield Bench(SqlResponses(database, clock=clock), clock)
    await database.aclose()


@pytest.fixture(
    params=[in_memory, in_sqlite, pytest.param(in_postgres, marks=pytest.mark.services)],
    ids=lambda make: make.__name__,
)
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    make: Callable[[Path], AbstractAsyncContextManager[Bench]] = request.param
    async with make(tmp_path) as opened:
        yield opened


def kept(name: str, **others: object) -> KeptResponse:
    fields = {"tenant": "a", "created_at": 5, "input_items": b"[1]", "body": b'{"x":"\xc3\xa4"}'}
    return KeptResponse(id=name, **{**fields, **others})  # type: ignore[arg-type]


async def test_what_was_put_comes_back_unchanged(bench: Bench) -> None:
    first = kept("resp_1", expires_at=int(bench.clock.now) + 9)
    await bench.store.put(first)
    assert await bench.store.get("resp_1", tenant="a") == first


async def test_a_chain_is_told_from_its_beginning(bench: Bench) -> None:
    links = [
        kept(f"resp_{i}", previous_id=f"resp_{i - 1}" if i else None, body=f"{i}".encode())
        for i in range(5)
    ]
    for link in links:
        await bench.store.put(link)
    assert list(await bench.store.chain("resp_3", tenant="a")) == links[:4]


async def test_a_chain_with_a_hole_is_none_and_names_the_hole(bench: Bench) -> None:
    await bench.store.put(kept("resp_1"))
    await bench.store.put(kept("resp_2", previous_id="resp_1"))
    await bench.store.delete("resp_1", tenant="a")
    with pytest.raises(ResponseMissing) as missing:
        await bench.store.chain("resp_2", tenant="a")
    assert missing.value.response_id == "resp_1"


async def test_another_tenants_response_is_missing(bench: Bench) -> None:
    await bench.store.put(kept("resp_1"))
    for call in (bench.store.get, bench.store.chain, bench.store.delete):
        with pytest.raises(ResponseMissing):
            await call("resp_1", tenant="b")
    assert (await bench.store.get("resp_1", tenant="a")).id == "resp_1"


async def test_an_expired_response_is_missing_also_after_others_came(bench: Bench) -> None:
    await bench.store.put(kept("resp_1", expires_at=int(bench.clock.now) + 9))
    bench.clock.now += 10
    for _ in range(2):
        for call in (bench.store.get, bench.store.chain, bench.store.delete):
            with pytest.raises(ResponseMissing):
                await call("resp_1", tenant="a")
        await bench.store.put(kept(f"resp_{bench.clock.now}"))
        bench.clock.now += 1
