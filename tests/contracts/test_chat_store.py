"""The contract of `ChatStore`: in memory, in SQLite, in PostgreSQL."""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from sqlalchemy import delete, func, select

from gateway.stored.api import ChatFilter, ChatMissing, ChatStore, KeptChat, MemoryChats
from gateway.stored.sql import SqlChats
from gateway.tables import chat_metadata, chats, metadata
from ingest.database import Database, sqlite_url
from ingest.stores_api import PageRequest
from tests.contracts.library_benches import POSTGRES, Clock

OLDEST_FIRST = PageRequest(ascending=True)
ALL = ChatFilter()


@dataclass(frozen=True, slots=True)
class Bench:
    store: ChatStore
    clock: Clock
    database: Database | None = None


@asynccontextmanager
async def in_memory(_: Path) -> AsyncIterator[Bench]:
    clock = Clock()
    yield Bench(MemoryChats(clock=clock), clock)


@asynccontextmanager
async def in_sqlite(folder: Path) -> AsyncIterator[Bench]:
    clock = Clock()
    database = await Database.connect(sqlite_url(folder / "gateway.db"), metadata)
    yield Bench(SqlChats(database, clock=clock), clock, database)
    await database.aclose()


@asynccontextmanager
async def in_postgres(_: Path) -> AsyncIterator[Bench]:
    url = os.environ.get(POSTGRES)
    if url is None:
        pytest.skip(f"{POSTGRES} names no database, such as postgresql+asyncpg://…")
    clock = Clock()
    database = await Database.connect(url, metadata)
    await database.run(lambda c: [c.execute(delete(one)) for one in (chats, chat_metadata)])
    yield Bench(SqlChats(database, clock=clock), clock, database)
    await database.aclose()


@pytest.fixture(
    params=[in_memory, in_sqlite, pytest.param(in_postgres, marks=pytest.mark.services)],
    ids=lambda make: make.__name__,
)
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    make: Callable[[Path], AbstractAsyncContextManager[Bench]] = request.param
    async with make(tmp_path) as opened:
        yield opened


def kept(name: str, **others: object) -> KeptChat:
    chat = KeptChat(
        id=name, tenant="a", model="m", created_at=5, messages=b"[]", body=b'{"x":"\xc3\xa4"}'
    )
    return replace(chat, **others)  # type: ignore[arg-type]


async def names(
    store: ChatStore, wanted: ChatFilter = ALL, page: PageRequest = OLDEST_FIRST
) -> list[str]:
    return [one.id for one in (await store.page(wanted, page, tenant="a")).items]


async def test_what_was_put_comes_back_unchanged(bench: Bench) -> None:
    one = kept("c1", metadata={"größe": "7\0"}, expires_at=int(bench.clock.now) + 9)
    await bench.store.put(one)
    assert await bench.store.get("c1", tenant="a") == one


async def test_pages_follow_each_other_in_both_orders(bench: Bench) -> None:
    for i in range(5):
        await bench.store.put(kept(f"c{i}"))
    page = await bench.store.page(ALL, PageRequest(limit=2, ascending=True), tenant="a")
    assert ([one.id for one in page.items], page.has_more) == (["c0", "c1"], True)
    last = PageRequest(after="c2", limit=2, ascending=True)
    assert await names(bench.store, page=last) == ["c3", "c4"]
    assert await names(bench.store, page=PageRequest(after="c2")) == ["c1", "c0"]
    with pytest.raises(ChatMissing):
        await names(bench.store, page=PageRequest(after="nobody"))


async def test_filters_must_all_hold(bench: Bench) -> None:
    await bench.store.put(kept("c1", metadata={"a": "1", "b": "\0"}))
    await bench.store.put(kept("c2", metadata={"a": "1"}, model="n"))
    assert await names(bench.store, ChatFilter(metadata={"a": "1"})) == ["c1", "c2"]
    assert await names(bench.store, ChatFilter(metadata={"a": "1", "b": "\0"})) == ["c1"]
    assert await names(bench.store, ChatFilter(metadata={"a": "2"})) == []
    assert await names(bench.store, ChatFilter(model="n", metadata={"a": "1"})) == ["c2"]


async def test_changed_metadata_is_what_is_searched(bench: Bench) -> None:
    await bench.store.put(kept("c1", metadata={"a": "1"}))
    changed = await bench.store.update("c1", {"b": "2"}, tenant="a")
    assert changed == await bench.store.get("c1", tenant="a") == kept("c1", metadata={"b": "2"})
    assert await names(bench.store, ChatFilter(metadata={"a": "1"})) == []
    assert await names(bench.store, ChatFilter(metadata={"b": "2"})) == ["c1"]


async def test_another_tenant_s_is_not_there(bench: Bench) -> None:
    await bench.store.put(kept("c1", tenant="b"))
    assert await names(bench.store) == []
    for call in (
        bench.store.get("c1", tenant="a"),
        bench.store.update("c1", {}, tenant="a"),
        bench.store.delete("c1", tenant="a"),
    ):
        with pytest.raises(ChatMissing):
            await call
    assert (await bench.store.get("c1", tenant="b")).metadata == {}


async def test_the_deleted_and_the_expired_are_gone_with_their_metadata(bench: Bench) -> None:
    soon = int(bench.clock.now) + 9
    await bench.store.put(kept("c1", metadata={"a": "1"}))
    await bench.store.put(kept("c2", metadata={"a": "1"}, expires_at=soon))
    await bench.store.delete("c1", tenant="a")
    assert await names(bench.store) == ["c2"]
    bench.clock.now = soon
    assert await names(bench.store) == []
    with pytest.raises(ChatMissing):
        await bench.store.get("c2", tenant="a")
    await bench.store.put(kept("c3"))
    assert await names(bench.store) == ["c3"]
    if bench.database is not None:
        count = select(func.count()).select_from(chat_metadata)
        assert await bench.database.run(lambda connection: connection.scalar(count)) == 0
