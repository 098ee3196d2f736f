"""The worker's embedder, seen from another process. Imports no model."""

from collections.abc import Sequence

import httpx
import msgspec

from ingest.client import Fault
from ingest.embeddings_api import Embedded, EmbedderFacts, TextTooLong
from ingest.embeddings_wire import WireTooLong, decode_vectors, encode_texts
from retrieval.api import SearchUnavailable

TIMEOUT_S = 120.0

_facts = msgspec.json.Decoder(EmbedderFacts)
_fault = msgspec.json.Decoder(Fault)
_too_long = msgspec.json.Decoder(WireTooLong)


class RemoteEmbeddings:
    """`Embeddings` over the worker's face; the caller owns the client."""

    def __init__(self, base_url: str, client: httpx.AsyncClient) -> None:
        self._base_url = base_url.rstrip("/")
        self._client = client

    async def facts(self) -> EmbedderFacts:
        answer = await self._ask("GET", "/v1/embedder", b"")
        try:
            return _facts.decode(answer)
        except msgspec.DecodeError as error:
            raise SearchUnavailable("the embedder answers in another language") from error

    async def embed(self, texts: Sequence[str]) -> Embedded:
        answer = await self._ask("POST", "/v1/embed", encode_texts(texts))
        try:
            return decode_vectors(answer)
        except msgspec.DecodeError as error:
            raise SearchUnavailable("the embedder answers in another language") from error

    async def _ask(self, method: str, path: str, body: bytes) -> bytes:
        try:
            response = await self._client.request(
                method,
                self._base_url + path,
                content=body,
                headers={"content-type": "application/json"},
                timeout=TIMEOUT_S,
            )
        except httpx.HTTPError as error:
            detail = str(error) or type(error).__name__
            raise SearchUnavailable(f"the embedder cannot be reached: {detail}") from error
        if response.is_success:
            return response.content
        raise _error_in(response)


def _error_in(response: httpx.Response) -> TextTooLong | SearchUnavailable:
    try:
        if _fault.decode(response.content).code == "text_too_long":
            told = _too_long.decode(response.content)
            return TextTooLong(index=told.index, num_tokens=told.num_tokens, limit=told.limit)
        return SearchUnavailable(_fault.decode(response.content).message)
    except msgspec.DecodeError:
        return SearchUnavailable(f"the embedder answered {response.status_code}")
