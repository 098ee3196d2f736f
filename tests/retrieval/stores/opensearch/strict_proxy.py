"""Proxies before a real node: one that loses answers, one with OpenSearch Serverless' manners.

The strict one takes only signed requests, only Serverless' operations, no ids of ours and no
refreshing; what was written is seen when the node's own slow refresh comes round. faiss, which the
tests' node lacks, becomes lucene with the same space, whose scores follow the same formula.
"""

import json
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from io import BytesIO

import aiohttp
from aiohttp import web

from tests.retrieval.stores.opensearch.sigv4 import complaint

VISIBLE_AFTER = "60ms"
KNOWN_AFTER_S = 0.1
"""Requests to a new index are answered 404 until then."""

_NOT_FOUND = {
    "error": {"type": "index_not_found_exception", "reason": "no such index"},
    "status": 404,
}
NO_ID = "Document ID is not supported in create/index operation request"

_OPERATIONS = (
    ("PUT", r"/[a-z0-9-]+"),
    ("DELETE", r"/[a-z0-9-]+"),
    ("GET", r"/[a-z0-9-]+/_mapping"),
    ("GET", r"/_alias/[a-z0-9-]+"),
    ("POST", r"/_aliases"),
    ("POST", r"/[a-z0-9-]+/_bulk"),
    ("POST", r"/[a-z0-9-]+/_search"),
    ("POST", r"/[a-z0-9-]+/_msearch"),
    ("POST", r"/[a-z0-9-]+/_count"),
)


@asynccontextmanager
async def plain_proxy(node: str, *, lost_answers: int = 0) -> AsyncIterator[str]:
    """The proxy's URL. The answers of the first bulks, applied all the same, never arrive."""
    async with _served(node, _Proxy, lost_answers) as url:
        yield url


@asynccontextmanager
async def strict_proxy(node: str, *, lost_answers: int = 0) -> AsyncIterator[str]:
    async with _served(node, _Strict, lost_answers) as url:
        yield url


@asynccontextmanager
async def _served(node: str, kind: "type[_Proxy]", lost_answers: int) -> AsyncIterator[str]:
    async with aiohttp.ClientSession(node) as session:
        app = web.Application(client_max_size=1 << 28)
        app.router.add_route("*", "/{path:.*}", kind(session, lost_answers).answer)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        [address] = runner.addresses
        try:
            yield f"http://127.0.0.1:{address[1]}"
        finally:
            await runner.cleanup()


class _Proxy:
    def __init__(self, session: aiohttp.ClientSession, lost_answers: int) -> None:
        self._session = session
        self._lost_answers = lost_answers

    async def answer(self, request: web.Request) -> web.Response:
        return await self.forward(request, await request.read())

    async def forward(self, request: web.Request, body: bytes) -> web.Response:
        headers = {"content-type": request.headers.get("content-type", "application/json")}
        async with self._session.request(
            request.method, request.rel_url, data=BytesIO(body) if body else None, headers=headers
        ) as answer:
            forwarded = web.Response(
                status=answer.status, body=await answer.read(), content_type="application/json"
            )
        if request.path.endswith("/_bulk") and self._lost_answers:
            self._lost_answers -= 1
            assert request.transport is not None, "still connected"
            request.transport.abort()
        return forwarded


class _Strict(_Proxy):
    def __init__(self, session: aiohttp.ClientSession, lost_answers: int) -> None:
        super().__init__(session, lost_answers)
        self._there_from: dict[str, float] = {}

    async def answer(self, request: web.Request) -> web.Response:
        body = await request.read()
        path, query = request.rel_url.raw_path, request.rel_url.raw_query_string
        unsigned = complaint(request.method, path, query, request.headers, body, service="aoss")
        if unsigned is not None:
            return web.json_response({"status": 403, "error": {"reason": unsigned}}, status=403)
        known = any(request.method == m and re.fullmatch(p, path) for m, p in _OPERATIONS)
        if not known or query:
            return web.Response(status=404)
        index = path.split("/")[1]
        if time.monotonic() < self._there_from.get(index, 0.0):
            return web.json_response(_NOT_FOUND, status=404)
        if request.method == "PUT":
            self._there_from[index] = time.monotonic() + KNOWN_AFTER_S
        if path.endswith("/_bulk") and (refusal := _refused_items(body)):
            return refusal
        return await self.forward(request, _index_body(body) if request.method == "PUT" else body)


def _refused_items(body: bytes) -> web.Response | None:
    """The answer to a bulk that names its documents or updates them."""
    items, skip = [], False
    for line in body.splitlines():
        if skip:
            skip = False
            continue
        [(name, head)] = json.loads(line).items()
        skip = name != "delete"
        if name == "update" or (name in ("index", "create") and "_id" in head):
            error = {"type": "illegal_argument_exception", "reason": NO_ID}
            items.append({name: {"_id": head.get("_id"), "status": 400, "error": error}})
    if not items:
        return None
    return web.json_response({"took": 0, "errors": True, "items": items})


def _index_body(body: bytes) -> bytes:
    index = json.loads(body)
    settings = index["settings"]["index"]
    assert set(settings) == {"knn"}, "Serverless takes no settings of shards, replicas, refreshes"
    settings["refresh_interval"] = VISIBLE_AFTER
    method = index["mappings"]["properties"]["vector"]["method"]
    assert method["engine"] == "faiss", "Serverless has no other engine"
    method["engine"] = "lucene"
    return json.dumps(index).encode()
