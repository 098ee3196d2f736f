"""POST /v1/chat/completions."""

from fastapi import APIRouter, Request, Response

from gateway.bodies import off_loop, read_object
from gateway.chat import ChatService
from gateway.openai.chat import to_ask
from gateway.openai.parse import parse_chat
from gateway.parts import Parts


def chat_router(parts: Parts, service: ChatService) -> APIRouter:
    router = APIRouter()

    @router.post("/v1/chat/completions")
    async def create_chat_completion(request: Request) -> Response:
        raw = await read_object(request, parts.max_body_bytes)
        body = await off_loop(parse_chat, raw)
        del raw
        return await service.reply(to_ask(body, seed=parts.new_seed()), request.receive)

    return router
