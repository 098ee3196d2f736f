"""API keys as issued: made, kept as digests only, found, revoked. Knows no HTTP and no limits."""

import base64
import hashlib
import re
import secrets
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import msgspec
from sqlalchemy import ColumnElement, Connection, Row, insert, select, update

from gateway.tenancy.api import Grants
from gateway.tenancy.schema import api_keys

PREFIX = "rk-"
SECRET_BYTES = 32
SHAPE = re.compile(r"rk-[A-Za-z0-9_-]{43}[0-9a-f]{8}")
TENANT = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")

Answer = TypeVar("Answer")


class Transactions(Protocol):
    """A SQL database; raises TransientError while it does not answer."""

    async def run(self, work: Callable[[Connection], Answer]) -> Answer: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuedKey:
    """`hint` is the key's last four characters. Times are Unix seconds."""

    id: str
    hint: str
    name: str
    tenant: str
    grants: Grants
    created_at: int
    expires_at: int | None = None
    revoked_at: float | None = None

    def is_valid_at(self, now_s: float) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now_s < self.expires_at)


class IssuedKeys(Protocol):
    """What is asked of keys: who holds the one of this digest, what became of the one of this id,
    and whether any were ever issued. All raise TransientError while the database is away."""

    async def find(self, digest: str) -> IssuedKey | None: ...

    async def get(self, key_id: str) -> IssuedKey | None: ...

    async def any(self) -> bool: ...


class KeyBook:
    """Keys in the metadata database."""

    def __init__(self, database: Transactions, *, clock: Callable[[], float]) -> None:
        self._database = database
        self._clock = clock

    async def create(
        self, *, name: str, tenant: str, grants: Grants, expires_at: int | None
    ) -> tuple[IssuedKey, str]:
        """The key as kept, and its text, which nobody can tell again.

        Raises ValueError for a tenant's name of another shape or an end that has passed.
        """
        now_s = self._clock()
        if not TENANT.fullmatch(tenant):
            raise ValueError(
                f"'{tenant}' is no tenant: up to 63 of a-z, 0-9, '.', '_' and '-', the first a "
                "letter or digit"
            )
        if expires_at is not None and expires_at <= now_s:
            raise ValueError("the key would have expired already")
        text = new_key_text()
        key = IssuedKey(
            id=f"key_{secrets.token_hex(8)}",
            hint=text[-4:],
            name=name,
            tenant=tenant,
            grants=grants,
            created_at=int(now_s),
            expires_at=expires_at,
        )
        statement = insert(api_keys).values(
            id=key.id,
            digest=digest_of(text),
            hint=key.hint,
            name=name,
            tenant=tenant,
            grants=msgspec.json.encode(grants).decode(),
            created_at=key.created_at,
            expires_at=expires_at,
        )
        await self._database.run(lambda connection: connection.execute(statement))
        return key, text

    async def list(self) -> Sequence[IssuedKey]:
        """All, also revoked and expired ones, the oldest first."""
        statement = select(api_keys).order_by(api_keys.c.created_at, api_keys.c.id)
        rows = await self._database.run(lambda connection: connection.execute(statement).all())
        return [_key_of(row) for row in rows]

    async def revoke(self, key_id: str) -> bool:
        """False when there is no such key, or it was revoked before."""
        living = (api_keys.c.id == key_id) & api_keys.c.revoked_at.is_(None)
        statement = update(api_keys).where(living).values(revoked_at=self._clock())
        return await self._database.run(lambda c: c.execute(statement).rowcount == 1)

    async def find(self, digest: str) -> IssuedKey | None:
        return await self._one(api_keys.c.digest == digest)

    async def get(self, key_id: str) -> IssuedKey | None:
        return await self._one(api_keys.c.id == key_id)

    async def _one(self, condition: ColumnElement[bool]) -> IssuedKey | None:
        statement = select(api_keys).where(condition)
        row = await self._database.run(lambda connection: connection.execute(statement).first())
        return None if row is None else _key_of(row)

    async def any(self) -> bool:
        statement = select(api_keys.c.id).limit(1)
        return await self._database.run(lambda c: c.execute(statement).first() is not None)


def new_key_text() -> str:
    """`rk-`, 256 random bits, and a checksum that tells a mistyped key without a look-up."""
    body = base64.urlsafe_b64encode(secrets.token_bytes(SECRET_BYTES)).rstrip(b"=").decode()
    return f"{PREFIX}{body}{_checksum(body)}"


def is_well_formed(text: str) -> bool:
    return SHAPE.fullmatch(text) is not None and _checksum(text[3:-8]) == text[-8:]


def digest_of(text: str) -> str:
    """Plain SHA-256: a random key of 256 bits cannot be guessed, however fast the hash is."""
    return hashlib.sha256(text.encode()).hexdigest()


def _checksum(body: str) -> str:
    return f"{zlib.crc32(body.encode()):08x}"


def _key_of(row: Row[*tuple[object, ...]]) -> IssuedKey:
    return IssuedKey(
        id=row.id,
        hint=row.hint,
        name=row.name,
        tenant=row.tenant,
        grants=msgspec.json.decode(row.grants, type=Grants),
        created_at=row.created_at,
        expires_at=row.expires_at,
        revoked_at=row.revoked_at,
    )
