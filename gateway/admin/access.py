"""Who may use the admin surface: the admin key's holder, or without one this machine.

An API key opens nothing here. Knows no endpoints.
"""

import hashlib
import hmac
import re

from pydantic import SecretStr
from starlette.requests import Request

from gateway.api import GatewayError, Unauthorized
from gateway.auth import is_loopback, sent_key

ACTOR = re.compile(r"[A-Za-z0-9._@ -]{1,64}")


class AdminForbidden(GatewayError):
    def __init__(self) -> None:
        super().__init__(
            "Without RINGWAY_ADMIN_KEY the admin surface answers only callers on this machine that "
            "speak to it directly and by a loopback name."
        )


class AdminDoor:
    def __init__(self, key: SecretStr | None) -> None:
        self._digest = None if key is None else _digest(key.get_secret_value())

    async def __call__(self, request: Request) -> None:
        """Let in whom `admin_of` then names. Raises Unauthorized or AdminForbidden."""
        if self._digest is not None:
            sent = _digest(sent_key(request.headers.get("authorization")))
            if not hmac.compare_digest(sent, self._digest):
                raise Unauthorized("Incorrect admin key provided.")
            means = "admin-key"
        elif not _is_local(request):
            raise AdminForbidden
        else:
            means = "loopback"
        actor = request.headers.get("x-ringway-actor", "")
        request.state.admin = f"{means}/{actor}" if ACTOR.fullmatch(actor) else means


def admin_of(request: Request) -> str:
    """Who it is, for the audit trail. `x-ringway-actor` names a person, and is believed."""
    admin: str = request.state.admin
    return admin


def _is_local(request: Request) -> bool:
    """From this machine, not through a proxy on it, and not by a web page that was pointed at
    loopback under a name of its own."""
    headers = request.headers
    if request.client is None or not is_loopback(request.client.host):
        return False
    if "forwarded" in headers or "x-forwarded-for" in headers or "origin" in headers:
        return False
    return is_loopback(_host_of(headers.get("host", "")))


def _host_of(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()
