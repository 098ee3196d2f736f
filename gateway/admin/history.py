"""Which policy was in force when, and who changed it: an append-only list, in memory or in SQL.

Knows no HTTP and reads no file.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import msgspec
from sqlalchemy import Connection, Row, insert, select
from sqlalchemy.exc import IntegrityError

from gateway.policy import Policy, policy_of
from gateway.tenancy.keys import Transactions
from gateway.tenancy.schema import policy_changes


class Cause(StrEnum):
    """`file`: the file said so, at a start or when it was read again."""

    FILE = "file"
    PUT = "put"
    ROLLBACK = "rollback"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """`seq` counts from 1 without gaps; `changed_at` is Unix seconds."""

    seq: int
    policy: Policy
    old_version: str | None
    cause: Cause
    who: str
    changed_at: float

    @property
    def version(self) -> str:
        return self.policy.version


class HistoryTaken(Exception):
    """A verdict for whoever appends: somebody else wrote this `seq` first."""


class History(Protocol):
    """Shared by all gateways on one database. Raises TransientError when that is away."""

    async def append(self, change: Change) -> None:
        """Raises HistoryTaken when there is a change of this `seq` already."""
        ...

    async def latest(self, limit: int) -> Sequence[Change]:
        """The newest first. Raises ValueError for a policy that this version cannot read."""
        ...

    async def newest_seq(self) -> int:
        """0 while nothing was ever appended."""
        ...


class MemoryHistory:
    def __init__(self) -> None:
        self._changes: list[Change] = []

    async def append(self, change: Change) -> None:
        if change.seq != len(self._changes) + 1:
            raise HistoryTaken
        self._changes.append(change)

    async def latest(self, limit: int) -> Sequence[Change]:
        return self._changes[::-1][:limit]

    async def newest_seq(self) -> int:
        return len(self._changes)


class SqlHistory:
    def __init__(self, database: Transactions) -> None:
        self._database = database

    async def append(self, change: Change) -> None:
        statement = insert(policy_changes).values(
            seq=change.seq,
            version=change.version,
            old_version=change.old_version,
            cause=change.cause,
            who=change.who,
            changed_at=change.changed_at,
            policy=msgspec.json.encode(change.policy).decode(),
        )

        def work(connection: Connection) -> None:
            connection.execute(statement)

        try:
            await self._database.run(work)
        except IntegrityError as error:
            raise HistoryTaken from error

    async def latest(self, limit: int) -> Sequence[Change]:
        statement = select(policy_changes).order_by(policy_changes.c.seq.desc()).limit(limit)
        rows = await self._database.run(lambda connection: connection.execute(statement).all())
        return [_change_of(row) for row in rows]

    async def newest_seq(self) -> int:
        statement = select(policy_changes.c.seq).order_by(policy_changes.c.seq.desc()).limit(1)
        return await self._database.run(lambda c: c.scalar(statement)) or 0


def _change_of(row: Row[*tuple[object, ...]]) -> Change:
    return Change(
        seq=row.seq,
        policy=policy_of(msgspec.json.decode(row.policy)),
        old_version=row.old_version,
        cause=Cause(row.cause),
        who=row.who,
        changed_at=row.changed_at,
    )
