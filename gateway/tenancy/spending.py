"""What each key cost per month, kept where restarts do not reach. Knows no limits."""

from typing import Protocol

from sqlalchemy import Connection, select
from sqlalchemy.dialects import postgresql, sqlite

from gateway.tenancy.keys import Transactions
from gateway.tenancy.schema import key_spending


class Spending(Protocol):
    async def of(self, key_id: str, month: str) -> int:
        """Millionths spent in the month. Raises TransientError."""
        ...

    async def add(self, key_id: str, month: str, micros: int) -> int:
        """All that was spent in the month, `micros` more than before. Raises TransientError."""
        ...


class MemorySpending:
    def __init__(self) -> None:
        self._micros: dict[tuple[str, str], int] = {}

    async def of(self, key_id: str, month: str) -> int:
        return self._micros.get((key_id, month), 0)

    async def add(self, key_id: str, month: str, micros: int) -> int:
        total = self._micros.get((key_id, month), 0) + micros
        self._micros[key_id, month] = total
        return total


class SqlSpending:
    def __init__(self, database: Transactions) -> None:
        self._database = database

    async def of(self, key_id: str, month: str) -> int:
        mine = (key_spending.c.key_id == key_id) & (key_spending.c.month == month)
        statement = select(key_spending.c.micros).where(mine)
        return int(await self._database.run(lambda c: c.scalar(statement)) or 0)

    async def add(self, key_id: str, month: str, micros: int) -> int:
        def work(connection: Connection) -> int:
            dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
            statement = dialect.insert(key_spending).values(
                key_id=key_id, month=month, micros=micros
            )
            summed = statement.on_conflict_do_update(
                index_elements=["key_id", "month"],
                set_={"micros": key_spending.c.micros + statement.excluded.micros},
            ).returning(key_spending.c.micros)
            return int(connection.execute(summed).scalar_one())

        return await self._database.run(work)
