"""How a gateway stops: readiness red, new work refused, what runs may finish, the rest is cut.

Knows ASGI and paths; no signals.
"""

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.api import Draining
from gateway.batches.calls import CALLER
from gateway.replies import error_response

STILL_SERVED = ("/health/", "/metrics", "/admin/")
SETTLE_S = 5.0
"""What was cut gets so long to say so and to settle."""


class Drain:
    def __init__(self) -> None:
        self.is_draining = False
        self.num_open = 0
        self._is_cut = False
        self._waiting: set[asyncio.Task[object]] = set()
        self._stopped: set[asyncio.Task[object]] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    def begin(self) -> None:
        self.is_draining = True

    async def finish(self, limit_s: float) -> None:
        """Returns when nothing runs any more; what does after `limit_s` is cut."""
        self.begin()
        if not await self._idle_within(limit_s):
            self._is_cut = True
            self._stopped |= self._waiting
            for task in self._waiting:
                task.cancel()
            await self._idle_within(SETTLE_S)

    def opened(self) -> None:
        self.num_open += 1
        self._idle.clear()

    def closed(self) -> None:
        self.num_open -= 1
        if self.num_open == 0:
            self._idle.set()

    def until_cut(self, receive: Receive) -> Receive:
        """`receive` that raises Draining once the time is up: whoever waits for the client to
        leave then stops with an error to tell. The body comes through as it is."""
        has_body = False

        async def received() -> Message:
            nonlocal has_body
            if not has_body:
                message = await receive()
                has_body = not message.get("more_body", False)
                return message
            return await self._waited(receive)

        return received

    async def _waited(self, receive: Receive) -> Message:
        """A task of its own would cost every request more than it costs to tell, at the end, our
        cancelling from others'."""
        if self._is_cut:
            raise Draining
        task = asyncio.current_task()
        assert task is not None, "requests are served by tasks"
        self._waiting.add(task)
        try:
            return await receive()
        except asyncio.CancelledError:
            if task in self._stopped and task.uncancel() == 0:
                raise Draining from None
            raise
        finally:
            self._waiting.discard(task)
            self._stopped.discard(task)

    async def _idle_within(self, limit_s: float) -> bool:
        try:
            async with asyncio.timeout(limit_s):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True


class DrainLayer:
    """Counts the requests that run, and refuses new ones while the gateway drains."""

    def __init__(self, app: ASGIApp, *, drain: Drain) -> None:
        self._app = app
        self._drain = drain

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        drain = self._drain
        if scope["type"] != "http" or scope["path"].startswith(STILL_SERVED):
            await self._app(scope, receive, send)
            return
        if drain.is_draining and CALLER in scope:
            # A line of a batch: it is cancelled with its runner, and run by the next process.
            await asyncio.Event().wait()
        if drain.is_draining:
            response = error_response(Draining())
            response.headers["connection"] = "close"
            await response(scope, receive, send)
            return
        drain.opened()
        try:
            await self._app(scope, drain.until_cut(receive), send)
        finally:
            drain.closed()
