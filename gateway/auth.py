"""Who is calling: keys, compared by digest, to a tenant and what it may do. Knows no endpoints.

A gateway for which no key was ever configured or issued serves the tenant `local` to everyone
who reaches it; who may reach it then is `may_bind`'s business.
"""

import hashlib
import hmac
import ipaddress
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pydantic import SecretStr

from gateway.api import Unauthorized
from gateway.tenancy.api import Caller
from gateway.tenancy.keys import IssuedKey, IssuedKeys, digest_of, is_well_formed

FRESH_S = 0.5
"""A key looked up is trusted for so long: a revoked one stops within a second."""

MAX_KEYS_REMEMBERED = 10_000


class KeyRing:
    """The keys of the configuration: no limits, the tenant `local`."""

    def __init__(self, keys: Sequence[SecretStr] = ()) -> None:
        self._digests = tuple(_digest(key.get_secret_value()) for key in keys)

    @property
    def is_open(self) -> bool:
        return not self._digests

    def holds(self, key: str) -> bool:
        sent = _digest(key)
        is_held = False
        for digest in self._digests:
            is_held |= hmac.compare_digest(sent, digest)
        return is_held

    def caller(self, authorization: str | None) -> Caller:
        """Whom an Authorization header names. Raises Unauthorized; the message holds no key."""
        if self.is_open or self.holds(sent_key(authorization)):
            return Caller()
        raise Unauthorized("Incorrect API key provided.")


@dataclass(frozen=True, slots=True)
class Seen:
    key: IssuedKey | None
    until_s: float


class Door:
    """Configured keys first, then issued ones. Times are Unix seconds."""

    def __init__(
        self,
        ring: KeyRing,
        issued: IssuedKeys | None,
        *,
        clock: Callable[[], float],
        fresh_s: float = FRESH_S,
    ) -> None:
        self._ring = ring
        self._issued = issued
        self._clock = clock
        self._fresh_s = fresh_s
        self._seen: OrderedDict[str, Seen] = OrderedDict()
        self._has_issued = False
        self._asked_until_s = 0.0

    async def caller(self, authorization: str | None) -> Caller:
        """Whom an Authorization header names. Raises Unauthorized; the message holds no key.

        Raises TransientError when an issued key cannot be looked up.
        """
        if self._issued is None or (await self._is_open()):
            return self._ring.caller(authorization)
        text = sent_key(authorization)
        if not self._ring.is_open and self._ring.holds(text):
            return Caller()
        key = await self._find(text) if is_well_formed(text) else None
        if key is None or key.revoked_at is not None:
            raise Unauthorized("Incorrect API key provided.")
        if not key.is_valid_at(self._clock()):
            raise Unauthorized("This API key has expired.")
        return Caller(key.tenant, key.id, key.grants)

    async def _is_open(self) -> bool:
        """No key configured and none ever issued: once one was, this is never true again."""
        if not self._ring.is_open or self._has_issued or self._issued is None:
            return False
        if self._clock() >= self._asked_until_s:
            self._has_issued = await self._issued.any()
            self._asked_until_s = self._clock() + self._fresh_s
        return not self._has_issued

    async def _find(self, text: str) -> IssuedKey | None:
        assert self._issued is not None, "asked only when keys are issued"
        digest, now_s = digest_of(text), self._clock()
        seen = self._seen.get(digest)
        if seen is None or now_s >= seen.until_s:
            key = await self._issued.find(digest)
            seen = self._seen[digest] = Seen(key, now_s + self._fresh_s)
            self._seen.move_to_end(digest)
            while len(self._seen) > MAX_KEYS_REMEMBERED:
                self._seen.popitem(last=False)
        return seen.key


def sent_key(authorization: str | None) -> str:
    scheme, _, key = (authorization or "").partition(" ")
    if scheme.lower() != "bearer" or not key.strip():
        raise Unauthorized("You didn't provide an API key: send 'Authorization: Bearer …'.")
    return key.strip()


def may_bind(host: str, keys: KeyRing, *, has_issued: bool = False) -> bool:
    """Without keys only this machine may call: any address but loopback is refused."""
    return not keys.is_open or has_issued or is_loopback(host)


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()
