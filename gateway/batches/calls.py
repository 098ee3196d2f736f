"""Requests to the gateway's own app from inside its process, in the name of who made a batch."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Scope

from gateway.tenancy.api import Caller
from gateway.tenancy.keys import IssuedKeys

CALLER = "ringway.caller"
"""Where such a request says in the ASGI scope who asks; no request from outside can write there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallAnswer:
    status: int
    headers: dict[str, str]
    body: bytes


class InProcess:
    """`clock` is Unix seconds. Configured keys, and none at all, have no id and no end."""

    def __init__(
        self, app: ASGIApp, issued: IssuedKeys | None, *, clock: Callable[[], float]
    ) -> None:
        self._app = app
        self._issued = issued
        self._clock = clock

    async def may_ask(self, caller: Caller) -> bool:
        """Whether the caller's key is still good. Raises TransientError."""
        if self._issued is None or not caller.key_id:
            return True
        key = await self._issued.get(caller.key_id)
        return key is not None and key.is_valid_at(self._clock())

    async def post(self, path: str, body: bytes, caller: Caller) -> CallAnswer:
        """Cancelling it is what a client does that leaves."""
        exchange = _Exchange(body)
        await self._app(_scope(path, len(body), caller), exchange.receive, exchange.send)
        return CallAnswer(
            status=exchange.status, headers=exchange.headers, body=bytes(exchange.body)
        )


class _Exchange:
    def __init__(self, sent: bytes) -> None:
        self._sent: bytes | None = sent
        self.status = 500
        self.headers: dict[str, str] = {}
        self.body = bytearray()

    async def receive(self) -> Message:
        if self._sent is None:
            await asyncio.Event().wait()
        body, self._sent = self._sent, None
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            self.body += message.get("body", b"")


def _scope(path: str, num_bytes: int, caller: Caller) -> Scope:
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [
            (b"content-type", b"application/json"),
            (b"content-length", str(num_bytes).encode()),
        ],
        "client": None,
        "server": None,
        "state": {},
        CALLER: caller,
    }
