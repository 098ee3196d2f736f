"""ASGI middleware: gives every request an id, in logs and in `x-request-id`; knows nothing else."""

import re
from collections.abc import Callable

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway import logs

WELL_FORMED = re.compile(r"[A-Za-z0-9._:-]{1,128}")


class RequestIds:
    def __init__(self, app: ASGIApp, *, new_id: Callable[[], str]) -> None:
        self._app = app
        self._new_id = new_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        sent = Headers(scope=scope).get("x-request-id", "")
        request_id = sent if WELL_FORMED.fullmatch(sent) else f"req_{self._new_id()}"

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["x-request-id"] = request_id
            await send(message)

        token = logs.request_id.set(request_id)
        try:
            await self._app(scope, receive, send_with_id)
        finally:
            logs.request_id.reset(token)
