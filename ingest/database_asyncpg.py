"""Transactions over asyncpg on the event loop. Imported only for such a database: it needs
SQLAlchemy's asyncio extra."""

from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

Answer = TypeVar("Answer")


class Looped:
    """An asynchronous engine; connections belong to the loop that opened them."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    @classmethod
    def over(cls, url: str) -> "Looped":
        return cls(create_async_engine(url, pool_pre_ping=True))

    async def run(self, work: Callable[[Connection], Answer]) -> Answer:
        async with self._engine.begin() as connection:
            return await connection.run_sync(work)

    async def aclose(self) -> None:
        await self._engine.dispose()
