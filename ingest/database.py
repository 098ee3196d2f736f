"""One SQL database, SQLite or PostgreSQL: connecting, threads, what its errors mean.

Knows no table's meaning.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol, TypeVar

from sqlalchemy import (
    Column,
    Connection,
    Engine,
    MetaData,
    Table,
    create_engine,
    event,
    inspect,
    text,
)
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.pool import ConnectionPoolEntry
from sqlalchemy.schema import CreateColumn, CreateIndex, CreateTable

from ingest.api import TransientError
from ingest.schema import metadata

BUSY_TIMEOUT_MS = 10_000
SETUP_LOCK = 0x52494E47
"""Names the advisory lock under which PostgreSQL's tables are created."""

PASSING_STATES = ("08", "40", "53", "55", "57")
"""SQLSTATE classes that may pass: connection, rollback, resources, locks, shutdown."""

Answer = TypeVar("Answer")


class Runner(Protocol):
    async def run(self, work: Callable[[Connection], Answer]) -> Answer: ...

    async def aclose(self) -> None: ...


class Database:
    """Runs short transactions; `work` is the same on every database.

    On SQLite a transaction must begin with its write, or only read: one that reads first holds a
    snapshot that another writer can outdate, and no busy timeout helps then.
    """

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    @classmethod
    async def connect(cls, url: str, tables: MetaData = metadata) -> "Database":
        """Open the database and create what is missing of `tables`.

        `postgresql+asyncpg://` runs on the event loop, every other driver in threads. Raises
        ValueError when the driver is not installed.
        """
        database = cls(_looped(url) if "+asyncpg:" in url else _threaded(url))
        await database.run(lambda connection: _create_tables(connection, tables))
        return database

    async def run(self, work: Callable[[Connection], Answer]) -> Answer:
        """Run `work` in one transaction: committed when it returns, undone when it raises.

        Raises TransientError when the database is locked, gone or full.
        """
        try:
            return await self._runner.run(work)
        except (DBAPIError, OSError) as error:
            if isinstance(error, DBAPIError) and not _may_pass(error):
                raise
            said = error.orig if isinstance(error, DBAPIError) else error
            raise TransientError(f"the database does not answer: {said}") from error

    async def aclose(self) -> None:
        await self._runner.aclose()


class Threaded:
    """A synchronous engine in threads of its own.

    SQLite gets one: it has one writer, and transactions that wait for it in a queue lose less
    time than those that look again every so often, holding threads that others need.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._threads = ThreadPoolExecutor(
            1 if engine.dialect.name == "sqlite" else None, thread_name_prefix="database"
        )

    async def run(self, work: Callable[[Connection], Answer]) -> Answer:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._transact, work)

    async def aclose(self) -> None:
        await asyncio.to_thread(self._engine.dispose)
        self._threads.shutdown(wait=False)

    def _transact(self, work: Callable[[Connection], Answer]) -> Answer:
        with self._engine.begin() as connection:
            return work(connection)


def sqlite_url(path: Path) -> str:
    return f"sqlite:///{path}"


def _looped(url: str) -> Runner:
    try:
        from ingest.database_asyncpg import Looped

        return Looped.over(url)
    except ImportError as error:
        raise ValueError(f"{url.split(':')[0]} needs 'sqlalchemy[asyncio]' and asyncpg") from error


def _threaded(url: str) -> Threaded:
    engine = create_engine(url)
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _prepare_sqlite)
    return Threaded(engine)


def _may_pass(error: DBAPIError) -> bool:
    if isinstance(error, OperationalError | InterfaceError) or error.connection_invalidated:
        return True
    state = getattr(error.orig, "sqlstate", None) or ""
    return isinstance(state, str) and state.startswith(PASSING_STATES)


def _create_tables(connection: Connection, tables: MetaData) -> None:
    """Safe while another process does the same, which `create_all` is not."""
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    elif connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": SETUP_LOCK})
    for table in tables.sorted_tables:
        connection.execute(CreateTable(table, if_not_exists=True))
        known = {str(column["name"]) for column in inspect(connection).get_columns(table.name)}
        for column in table.columns:
            if column.name not in known:
                _add_column(connection, table, column)
        for index in sorted(table.indexes, key=lambda index: str(index.name)):
            connection.execute(CreateIndex(index, if_not_exists=True))


def _add_column(connection: Connection, table: Table, column: Column[object]) -> None:
    """For a database made by an older version, whose rows have the column's default."""
    spelled = CreateColumn(column).compile(dialect=connection.dialect)
    name = connection.dialect.identifier_preparer.format_table(table)
    connection.exec_driver_sql(f"ALTER TABLE {name} ADD COLUMN {spelled}")


def _prepare_sqlite(connection: DBAPIConnection, _entry: ConnectionPoolEntry) -> None:
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()
