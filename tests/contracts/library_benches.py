"""Libraries for the contract suites: the fake, the real one, and the real one on PostgreSQL."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from sqlalchemy import Connection, delete

from ingest.api import Library
from ingest.fake import FakeLibrary
from ingest.schema import metadata
from ingest.stores_api import NewStoreFile, NewVectorStore, StoreSearch, VectorStores
from retrieval.api import Filter
from tests.ingest.house import PlainSandbox, open_house, pieces

POSTGRES = "RINGWAY_TEST_POSTGRES"
LEASE = (
    "The lease of the lighthouse begins in May and costs nine hundred guilders.\n\n"
    "The keeper feeds the gulls every morning with herring from the harbour.\n\n"
    "Nobody may paint the lantern room in any colour but white."
)


@dataclass(slots=True)
class Clock:
    now: float = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


@dataclass(frozen=True, slots=True)
class Bench:
    library: Library
    settle: Callable[[], Awaitable[None]]
    clock: Clock = field(default_factory=Clock)

    @property
    def stores(self) -> VectorStores:
        return self.library.stores

    async def file(self, text: str = LEASE, name: str = "f.txt") -> str:
        body = pieces(text.encode())
        record = await self.library.add(filename=name, purpose="assistants", body=body)
        return record.id

    async def store(self, *file_ids: str) -> str:
        new = NewVectorStore(files=[NewStoreFile(file_id=one) for one in file_ids])
        store = await self.stores.create(new)
        await self.settle()
        return store.id

    async def found(self, store_id: str, query: str, wanted: Filter | None = None) -> list[str]:
        """The ids of the files found, best first."""
        result = await self.stores.search(store_id, StoreSearch(queries=[query], filter=wanted))
        return list(dict.fromkeys(hit.passage.document_id for hit in result.hits))


OpenBench = Callable[[Path], AbstractAsyncContextManager[Bench]]


@asynccontextmanager
async def fake_bench(_: Path) -> AsyncIterator[Bench]:
    async def settle() -> None:
        return None

    clock = Clock()
    yield Bench(FakeLibrary(clock=clock), settle, clock)


@asynccontextmanager
async def local_bench(folder: Path) -> AsyncIterator[Bench]:
    clock = Clock()
    async with open_house(folder, clock=clock, sandbox=PlainSandbox()) as house:
        yield Bench(house.library, house.settle, clock)


@asynccontextmanager
async def postgres_bench(folder: Path) -> AsyncIterator[Bench]:
    """The real library with its ledger in PostgreSQL."""
    url = os.environ.get(POSTGRES)
    if url is None:
        pytest.skip(f"{POSTGRES} names no database, such as postgresql+asyncpg://…")
    clock = Clock()
    async with open_house(folder, clock=clock, sandbox=PlainSandbox(), url=url) as house:
        await house.database.run(empty_tables)
        yield Bench(house.library, house.settle, clock)


def empty_tables(connection: Connection) -> None:
    for table in reversed(metadata.sorted_tables):
        connection.execute(delete(table))


BENCHES = [
    pytest.param(fake_bench, id="fake"),
    pytest.param(local_bench, id="local"),
    pytest.param(postgres_bench, id="postgres", marks=pytest.mark.services),
]
