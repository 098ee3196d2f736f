"""Answered responses as rows. Knows no more of them than `gateway.responses.storage` says."""

import time
from collections.abc import Callable, Sequence

from sqlalchemy import ColumnElement, Connection, Row, and_, delete, insert, or_, select

from gateway.responses.storage import KeptResponse, ResponseMissing
from gateway.tables import responses
from ingest.database import Database


class SqlResponses:
    """A `ResponseStore` in a database; expired rows go when new ones come."""

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    async def put(self, kept: KeptResponse) -> None:
        spent = delete(responses).where(responses.c.expires_at <= self._clock())
        added = insert(responses).values(
            id=kept.id,
            tenant=kept.tenant,
            previous_id=kept.previous_id,
            created_at=kept.created_at,
            expires_at=kept.expires_at,
            input_items=kept.input_items,
            body=kept.body,
        )

        def work(connection: Connection) -> None:
            connection.execute(spent)
            connection.execute(added)

        await self._database.run(work)

    async def get(self, response_id: str, *, tenant: str) -> KeptResponse:
        theirs = self._theirs(tenant)
        return await self._database.run(lambda c: _get(c, response_id, theirs))

    async def chain(self, response_id: str, *, tenant: str) -> Sequence[KeptResponse]:
        theirs = self._theirs(tenant)

        def work(connection: Connection) -> list[KeptResponse]:
            links: list[KeptResponse] = []
            link: str | None = response_id
            while link is not None:
                links.append(_get(connection, link, theirs))
                link = links[-1].previous_id
            return links[::-1]

        return await self._database.run(work)

    async def delete(self, response_id: str, *, tenant: str) -> None:
        gone = delete(responses).where(responses.c.id == response_id, self._theirs(tenant))
        if await self._database.run(lambda c: c.execute(gone).rowcount) != 1:
            raise ResponseMissing(response_id)

    def _theirs(self, tenant: str) -> ColumnElement[bool]:
        lives = or_(responses.c.expires_at.is_(None), responses.c.expires_at > self._clock())
        return and_(responses.c.tenant == tenant, lives)


def _get(connection: Connection, response_id: str, theirs: ColumnElement[bool]) -> KeptResponse:
    row = connection.execute(select(responses).where(responses.c.id == response_id, theirs)).first()
    if row is None:
        raise ResponseMissing(response_id)
    return _kept(row)


def _kept(row: Row[*tuple[object, ...]]) -> KeptResponse:
    return KeptResponse(
        id=row.id,
        tenant=row.tenant,
        created_at=row.created_at,
        input_items=row.input_items,
        body=row.body,
        previous_id=row.previous_id,
        expires_at=row.expires_at,
    )
