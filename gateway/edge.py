"""The outermost ASGI layer: every request gets an id, and every stray exception an answer.

Knows no endpoints. Errors raised on purpose never come here; `app` has their handlers.
"""

import logging
import re
from collections.abc import Callable

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway import logs
from gateway.replies import error_response

logger = logging.getLogger(__name__)

WELL_FORMED = re.compile(r"[A-Za-z0-9._:-]{1,128}")


class Edge:
    def __init__(self, app: ASGIApp, *, new_id: Callable[[], str]) -> None:
        self._app = app
        self._new_id = new_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        sent = Headers(scope=scope).get("x-request-id", "")
        request_id = sent if WELL_FORMED.fullmatch(sent) else f"req_{self._new_id()}"
        token = logs.request_id.set(request_id)
        try:
            await self._answer(scope, receive, send, request_id)
        finally:
            logs.request_id.reset(token)

    async def _answer(self, scope: Scope, receive: Receive, send: Send, request_id: str) -> None:
        has_started = False

        async def send_with_id(message: Message) -> None:
            nonlocal has_started
            if message["type"] == "http.response.start":
                has_started = True
                MutableHeaders(scope=message)["x-request-id"] = request_id
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except Exception as error:
            if has_started:
                raise
            logger.exception("unforeseen error")
            await error_response(error)(scope, receive, send_with_id)
