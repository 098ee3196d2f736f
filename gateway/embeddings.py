"""One request for embeddings, from its body to its reply. Knows no model."""

import asyncio

from starlette.responses import Response
from starlette.types import Receive

from gateway.api import InvalidRequest, UnknownModel
from gateway.openai.embeddings import EmbeddingsBody, embeddings_list
from gateway.outcomes import concluded
from gateway.parts import Parts
from gateway.replies import json_response
from gateway.together import while_connected, within
from ingest.embeddings_api import Embeddings
from retrieval.api import SearchUnavailable

ENDPOINT = "embeddings"


class EmbeddingsService:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def models(self) -> list[str]:
        """The names that may be asked for: none while the embedder is away."""
        if self._parts.embeddings is None:
            return []
        try:
            return [(await self._parts.embeddings.facts()).model]
        except SearchUnavailable:
            return []

    async def reply(self, body: EmbeddingsBody, receive: Receive) -> Response:
        """Raises UnknownModel, InvalidRequest, TextTooLong, SearchUnavailable or ClientLeft."""
        with concluded(ENDPOINT, self._parts.metrics, self._parts.monotonic):
            limit_s = self._parts.board.current.answer.deadline_s
            return await while_connected(receive, within(limit_s, self._answer(body)))

    async def _answer(self, body: EmbeddingsBody) -> Response:
        async with self._parts.accounts.counting(body.model) as counted:
            embeddings = await self._checked(body)
            embedded = await embeddings.embed(body.texts)
            counted.tokens = sum(embedded.num_tokens)
        return await asyncio.to_thread(lambda: json_response(embeddings_list(body, embedded)))

    async def _checked(self, body: EmbeddingsBody) -> Embeddings:
        embeddings = self._parts.embeddings
        if embeddings is None:
            raise UnknownModel(body.model)
        facts = await embeddings.facts()
        if body.model != facts.model:
            raise UnknownModel(body.model)
        if body.dimensions not in (None, facts.dimension):
            raise InvalidRequest(
                f"Invalid value for 'dimensions': vectors of '{facts.model}' have "
                f"{facts.dimension} dimensions and are not shortened.",
                param="dimensions",
                code="invalid_value",
            )
        return embeddings
