"""The outermost ASGI layer: every request gets an id and its key's standing, and every stray
exception an answer.

Knows no endpoints. Errors raised on purpose never come here; `app` has their handlers.
"""

import logging
import re
from collections.abc import Callable

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway import logs
from gateway.replies import error_response
from gateway.telemetry import api as telemetry
from gateway.telemetry.api import Tracing
from gateway.tenancy.api import Tab
from gateway.tenancy.standing import standing_headers

logger = logging.getLogger(__name__)

WELL_FORMED = re.compile(r"[A-Za-z0-9._:-]{1,128}")


class Edge:
    def __init__(
        self, app: ASGIApp, *, new_id: Callable[[], str], tracing: Tracing | None = None
    ) -> None:
        self._app = app
        self._new_id = new_id
        self._tracing = tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        sent = Headers(scope=scope).get("x-request-id", "")
        request_id = sent if WELL_FORMED.fullmatch(sent) else f"req_{self._new_id()}"
        token = logs.request_id.set(request_id)
        try:
            if self._tracing is None or not scope["path"].startswith("/v1/"):
                await self._answer(scope, receive, send, request_id)
            else:
                await self._traced(self._tracing, scope, receive, send, request_id)
        finally:
            logs.request_id.reset(token)

    async def _traced(
        self, tracing: Tracing, scope: Scope, receive: Receive, send: Send, request_id: str
    ) -> None:
        trace = tracing.begin(scope["method"], scope["path"], Headers(scope=scope))
        trace.tell({"ringway.request_id": request_id})
        status, error = 0, ""

        async def send_seen(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        token = telemetry.current.set(trace)
        try:
            await self._answer(scope, receive, send_seen, request_id)
        except BaseException as raised:
            error = type(raised).__name__
            raise
        finally:
            telemetry.current.reset(token)
            trace.end(status=status, error=error)

    async def _answer(self, scope: Scope, receive: Receive, send: Send, request_id: str) -> None:
        has_started = False
        state = scope.setdefault("state", {})

        async def send_with_id(message: Message) -> None:
            nonlocal has_started
            if message["type"] == "http.response.start":
                has_started = True
                headers = MutableHeaders(scope=message)
                headers["x-request-id"] = request_id
                tab: Tab | None = state.get("tab")
                if tab is not None:
                    headers.update(standing_headers(tab.standing))
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except Exception as error:
            if has_started:
                raise
            logger.exception("unforeseen error")
            await error_response(error)(scope, receive, send_with_id)
