"""POST /v1/embeddings."""

from fastapi import APIRouter, Request, Response

from gateway.bodies import off_loop, read_object
from gateway.embeddings import EmbeddingsService
from gateway.openai.embeddings import parse_embeddings
from gateway.parts import Parts


def embeddings_router(parts: Parts, service: EmbeddingsService) -> APIRouter:
    router = APIRouter()

    @router.post("/v1/embeddings")
    async def create_embeddings(request: Request) -> Response:
        raw = await read_object(request, parts.max_body_bytes)
        body = await off_loop(parse_embeddings, raw)
        del raw
        return await service.reply(body, request.receive)

    return router
