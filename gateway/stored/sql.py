"""Kept chat completions as rows, their metadata as rows of their own, which are searched.

Knows no more of them than `gateway.stored.api` says.
"""

import time
from collections.abc import Callable, Mapping

import msgspec
from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    and_,
    delete,
    exists,
    insert,
    or_,
    select,
    update,
)

from gateway.stored.api import ChatFilter, ChatMissing, KeptChat
from gateway.tables import chat_metadata, chats
from ingest.database import Database
from ingest.paging import page_rows
from ingest.stores_api import Page, PageRequest

_metadata = msgspec.json.Decoder(dict[str, str])


class SqlChats:
    """A `ChatStore` in a database; expired rows go when new ones come."""

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    async def put(self, kept: KeptChat) -> None:
        spent = chats.c.expires_at <= self._clock()

        def work(connection: Connection) -> None:
            of_spent = select(chats.c.id).where(spent).scalar_subquery()
            connection.execute(delete(chat_metadata).where(chat_metadata.c.chat_id.in_(of_spent)))
            connection.execute(delete(chats).where(spent))
            connection.execute(insert(chats).values(**_row(kept)))
            _put_metadata(connection, kept.id, kept.metadata)

        await self._database.run(work)

    async def get(self, completion_id: str, *, tenant: str) -> KeptChat:
        theirs = self._theirs(tenant)
        return await self._database.run(lambda c: _get(c, completion_id, theirs))

    async def page(self, wanted: ChatFilter, page: PageRequest, *, tenant: str) -> Page[KeptChat]:
        theirs = self._theirs(tenant)

        def place_of(connection: Connection, completion_id: str) -> int:
            seq = connection.scalar(select(chats.c.seq).where(chats.c.id == completion_id, theirs))
            if seq is None:
                raise ChatMissing(completion_id)
            return int(seq)

        def work(connection: Connection) -> Page[KeptChat]:
            rows, has_more = page_rows(
                connection,
                select(chats).where(theirs, *_conditions(wanted)),
                chats.c.seq,
                page,
                lambda completion_id: place_of(connection, completion_id),
            )
            return Page(items=[_kept(row) for row in rows], has_more=has_more)

        return await self._database.run(work)

    async def update(
        self, completion_id: str, metadata: Mapping[str, str], *, tenant: str
    ) -> KeptChat:
        theirs = self._theirs(tenant)
        changed = (
            update(chats)
            .where(chats.c.id == completion_id, theirs)
            .values(metadata=_text(metadata))
        )

        def work(connection: Connection) -> KeptChat:
            if connection.execute(changed).rowcount != 1:
                raise ChatMissing(completion_id)
            _forget_metadata(connection, completion_id)
            _put_metadata(connection, completion_id, metadata)
            return _get(connection, completion_id, theirs)

        return await self._database.run(work)

    async def delete(self, completion_id: str, *, tenant: str) -> None:
        gone = delete(chats).where(chats.c.id == completion_id, self._theirs(tenant))

        def work(connection: Connection) -> None:
            if connection.execute(gone).rowcount != 1:
                raise ChatMissing(completion_id)
            _forget_metadata(connection, completion_id)

        await self._database.run(work)

    def _theirs(self, tenant: str) -> ColumnElement[bool]:
        lives = or_(chats.c.expires_at.is_(None), chats.c.expires_at > self._clock())
        return and_(chats.c.tenant == tenant, lives)


def _conditions(wanted: ChatFilter) -> list[ColumnElement[bool]]:
    found: list[ColumnElement[bool]] = [
        exists().where(
            chat_metadata.c.chat_id == chats.c.id,
            chat_metadata.c.name == _text(name),
            chat_metadata.c.value == _text(value),
        )
        for name, value in wanted.metadata.items()
    ]
    return found if wanted.model is None else [chats.c.model == wanted.model, *found]


def _put_metadata(connection: Connection, chat_id: str, metadata: Mapping[str, str]) -> None:
    rows = [
        {"chat_id": chat_id, "name": _text(name), "value": _text(value)}
        for name, value in metadata.items()
    ]
    if rows:
        connection.execute(insert(chat_metadata), rows)


def _forget_metadata(connection: Connection, chat_id: str) -> None:
    connection.execute(delete(chat_metadata).where(chat_metadata.c.chat_id == chat_id))


def _get(connection: Connection, chat_id: str, theirs: ColumnElement[bool]) -> KeptChat:
    row = connection.execute(select(chats).where(chats.c.id == chat_id, theirs)).first()
    if row is None:
        raise ChatMissing(chat_id)
    return _kept(row)


def _row(kept: KeptChat) -> Mapping[str, object]:
    return {
        "id": kept.id,
        "tenant": kept.tenant,
        "model": kept.model,
        "created_at": kept.created_at,
        "expires_at": kept.expires_at,
        "messages": kept.messages,
        "body": kept.body,
        "metadata": _text(kept.metadata),
    }


def _kept(row: Row[*tuple[object, ...]]) -> KeptChat:
    return KeptChat(
        id=row.id,
        tenant=row.tenant,
        model=row.model,
        created_at=row.created_at,
        expires_at=row.expires_at,
        messages=row.messages,
        body=row.body,
        metadata=_metadata.decode(row.metadata),
    )


def _text(value: Mapping[str, str] | str) -> str:
    """As JSON, in which a NUL is written: PostgreSQL's texts hold none."""
    return msgspec.json.encode(value).decode()
