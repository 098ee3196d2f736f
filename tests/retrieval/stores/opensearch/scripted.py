"""An HTTP server on loopback that answers as its script says and keeps what it was sent."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

Script = Callable[["Sent"], web.StreamResponse | None]
"""None breaks the connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """`number` counts the requests from 0."""

    number: int
    method: str
    raw_path: str
    query: str
    headers: dict[str, str]
    body: bytes


@dataclass(slots=True)
class Server:
    url: str = ""
    sent: list[Sent] = field(default_factory=list)


@asynccontextmanager
async def scripted(script: Script) -> AsyncIterator[Server]:
    server = Server()

    async def answer(request: web.Request) -> web.StreamResponse:
        sent = Sent(
            number=len(server.sent),
            method=request.method,
            raw_path=request.rel_url.raw_path,
            query=request.rel_url.raw_query_string,
            headers=dict(request.headers),
            body=await request.read(),
        )
        server.sent.append(sent)
        response = script(sent)
        if response is None:
            assert request.transport is not None, "still connected"
            request.transport.abort()
        return response or web.Response()

    app = web.Application(client_max_size=1 << 28)
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        [address] = runner.addresses
        server.url = f"http://127.0.0.1:{address[1]}"
        yield server
    finally:
        await runner.cleanup()
