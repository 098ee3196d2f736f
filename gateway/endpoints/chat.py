"""POST /v1/chat/completions."""

from fastapi import APIRouter, Request, Response

from gateway.bodies import off_loop, read_object
from gateway.endpoints.tenant import tenant_of
from gateway.openai.parse import parse_chat
from gateway.parts import Parts
from gateway.stored.service import StoredChats


def chat_router(parts: Parts, chats: StoredChats) -> APIRouter:
    router = APIRouter()

    @router.post("/v1/chat/completions")
    async def create_chat_completion(request: Request) -> Response:
        raw = await read_object(request, parts.max_body_bytes)
        body = await off_loop(parse_chat, raw)
        del raw
        return await chats.reply(body, request.receive, tenant=tenant_of(request))

    return router
