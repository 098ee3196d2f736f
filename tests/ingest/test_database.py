"""Processes that start at the same time share one new database."""

import asyncio
import sys
from pathlib import Path

import pytest
from sqlalchemy import text

from ingest.api import TransientError
from ingest.database import Database, sqlite_url
from ingest.ledger import Ledger

OLD_FILE = """
INSERT INTO files (id, filename, purpose, num_bytes, digest, created_at, status, notes)
VALUES ('file-1', 'a.txt', 'user_data', 1, '00', 1, 'uploaded', '[]')
"""

SCRIPT = """
import asyncio, sys
from ingest.database import Database
async def main():
    database = await Database.connect(sys.argv[1])
    await database.aclose()
asyncio.run(main())
"""


async def test_four_processes_may_create_the_tables_at_once(tmp_path: Path) -> None:
    url = sqlite_url(tmp_path / "m.db")
    processes = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", SCRIPT, url) for _ in range(4)
    ]
    assert [await process.wait() for process in processes] == [0, 0, 0, 0]


async def test_trouble_with_the_database_may_pass(tmp_path: Path) -> None:
    database = await Database.connect(sqlite_url(tmp_path / "m.db"))
    with pytest.raises(TransientError, match="no such table"):
        await database.run(lambda connection: connection.execute(text("DELETE FROM absent")))
    await database.aclose()


async def test_readers_do_not_wait_for_a_writer(tmp_path: Path) -> None:
    database = await Database.connect(sqlite_url(tmp_path / "m.db"))
    mode = await database.run(lambda c: c.scalar(text("PRAGMA journal_mode")))
    await database.aclose()
    assert mode == "wal"


async def test_a_database_of_an_older_version_gets_the_columns_it_lacks(tmp_path: Path) -> None:
    url = sqlite_url(tmp_path / "m.db")
    database = await Database.connect(url)
    await database.run(lambda c: c.exec_driver_sql("ALTER TABLE jobs DROP COLUMN collection"))
    await database.run(lambda c: c.exec_driver_sql("ALTER TABLE files DROP COLUMN attempts"))
    await database.run(lambda c: c.exec_driver_sql(OLD_FILE))
    await database.aclose()
    database = await Database.connect(url)
    entry = await Ledger(database).get("file-1")
    assert (entry.record.attempts, entry.record.expires_at) == (0, None)
    await database.aclose()
