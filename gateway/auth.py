"""Who is calling: keys, compared by hash, to a tenant. Knows no endpoints.

Keys are kept as SHA-256 digests only; a configured gateway without keys serves one tenant.
"""

import hashlib
import hmac
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import SecretStr

from gateway.api import Unauthorized


@dataclass(frozen=True, slots=True)
class Caller:
    tenant: str


class KeyRing:
    def __init__(self, keys: Sequence[SecretStr] = ()) -> None:
        self._digests = tuple(_digest(key.get_secret_value()) for key in keys)

    @property
    def is_open(self) -> bool:
        return not self._digests

    def caller(self, authorization: str | None) -> Caller:
        """Whom an Authorization header names. Raises Unauthorized; the message holds no key."""
        if self.is_open:
            return Caller("local")
        scheme, _, key = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not key.strip():
            raise Unauthorized("You didn't provide an API key: send 'Authorization: Bearer …'.")
        sent = _digest(key.strip())
        known = [hmac.compare_digest(sent, digest) for digest in self._digests]
        if not any(known):
            raise Unauthorized("Incorrect API key provided.")
        return Caller("local")


def may_bind(host: str, keys: KeyRing) -> bool:
    """Without keys only this machine may call: any address but loopback is refused."""
    if not keys.is_open or host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()
