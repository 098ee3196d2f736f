"""The worker's HTTP face, seen from another process. Imports no model and no index."""

from collections.abc import Mapping
from typing import TypeVar

import httpx
import msgspec

from ingest.api import InlineSearch
from ingest.wire import encode_search
from retrieval.api import QueryRejected, SearchRequest, SearchResult, SearchUnavailable

GRACE_S = 1.0
NUDGE_TIMEOUT_S = 1.0

Body = TypeVar("Body")


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """The body of every error answer of the face."""

    code: str
    message: str


ERRORS: Mapping[str, type[QueryRejected] | type[SearchUnavailable]] = {
    "query_rejected": QueryRejected,
    "search_unavailable": SearchUnavailable,
}

_encoder = msgspec.json.Encoder()
_result = msgspec.json.Decoder(SearchResult)
_fault = msgspec.json.Decoder(Fault)


class RemoteSearcher:
    """A `Searcher` and an inline searcher in the worker process; the caller owns the client.

    All trouble on the way is SearchUnavailable.
    """

    def __init__(self, base_url: str, client: httpx.AsyncClient) -> None:
        self._base_url = base_url.rstrip("/")
        self._client = client

    async def search(self, request: SearchRequest) -> SearchResult:
        return await self._ask("/v1/search", encode_search(request), request.deadline_s)

    async def search_inline(self, request: InlineSearch) -> SearchResult:
        return await self._ask("/v1/search/inline", _encoder.encode(request), request.deadline_s)

    async def nudge(self) -> None:
        """Tell the worker that a job waits. Raises SearchUnavailable; it polls as well."""
        await self._post("/v1/nudge", b"", NUDGE_TIMEOUT_S)

    async def _ask(self, path: str, body: bytes, deadline_s: float) -> SearchResult:
        answer = await self._post(path, body, deadline_s)
        try:
            return _result.decode(answer)
        except msgspec.DecodeError as error:
            raise SearchUnavailable("the search service answers in another language") from error

    async def _post(self, path: str, body: bytes, deadline_s: float) -> bytes:
        try:
            response = await self._client.post(
                self._base_url + path,
                content=body,
                headers={"content-type": "application/json"},
                timeout=deadline_s + GRACE_S,
            )
        except httpx.HTTPError as error:
            detail = str(error) or type(error).__name__
            raise SearchUnavailable(f"the search service cannot be reached: {detail}") from error
        if response.is_success:
            return response.content
        raise _error_in(response)


def _error_in(response: httpx.Response) -> QueryRejected | SearchUnavailable:
    try:
        fault = _fault.decode(response.content)
    except msgspec.DecodeError:
        return SearchUnavailable(f"the search service answered {response.status_code}")
    return ERRORS.get(fault.code, SearchUnavailable)(fault.message)
