"""One SQL database: connecting, pragmas, threads. Knows no table's meaning."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import ConnectionPoolEntry
from sqlalchemy.schema import CreateIndex, CreateTable

from ingest.api import TransientError
from ingest.schema import metadata

BUSY_TIMEOUT_MS = 10_000

Answer = TypeVar("Answer")


class Database:
    """Runs short transactions of a synchronous engine in threads.

    On SQLite a transaction must begin with its write, or only read: one that reads first holds a
    snapshot that another writer can outdate, and no busy timeout helps then.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @classmethod
    async def connect(cls, url: str) -> "Database":
        """Open the database and create the tables that are missing."""
        engine = create_engine(url)
        if engine.dialect.name == "sqlite":
            event.listen(engine, "connect", _prepare_sqlite)
        database = cls(engine)
        await database.run(_create_tables)
        return database

    async def run(self, work: Callable[[Connection], Answer]) -> Answer:
        """Run `work` in one transaction: committed when it returns, undone when it raises.

        Raises TransientError when the database is locked, gone or full.
        """
        return await asyncio.to_thread(self._transact, work)

    async def aclose(self) -> None:
        await asyncio.to_thread(self._engine.dispose)

    def _transact(self, work: Callable[[Connection], Answer]) -> Answer:
        try:
            with self._engine.begin() as connection:
                return work(connection)
        except OperationalError as error:
            raise TransientError(f"the database does not answer: {error.orig}") from error


def sqlite_url(path: Path) -> str:
    return f"sqlite:///{path}"


def _create_tables(connection: Connection) -> None:
    """Safe while another process does the same, which `create_all` is not."""
    for table in metadata.sorted_tables:
        connection.execute(CreateTable(table, if_not_exists=True))
        for index in sorted(table.indexes, key=lambda index: str(index.name)):
            connection.execute(CreateIndex(index, if_not_exists=True))


def _prepare_sqlite(connection: DBAPIConnection, _entry: ConnectionPoolEntry) -> None:
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()
