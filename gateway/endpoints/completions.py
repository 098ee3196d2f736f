"""POST /v1/completions."""

from fastapi import APIRouter, Request, Response

from gateway.bodies import off_loop, read_object
from gateway.completions import CompletionService
from gateway.openai.completions import completion_asks, parse_completion
from gateway.parts import Parts


def completions_router(parts: Parts, service: CompletionService) -> APIRouter:
    router = APIRouter()

    @router.post("/v1/completions")
    async def create_completion(request: Request) -> Response:
        raw = await read_object(request, parts.max_body_bytes)
        body = await off_loop(parse_completion, raw)
        del raw
        asks = completion_asks(body, seed=parts.new_seed())
        return await service.reply(asks, request.receive, echo=bool(body.echo))

    return router
