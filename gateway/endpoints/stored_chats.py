"""/v1/chat/completions that were kept: list, get, change, delete, and what they were asked with."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response

from gateway.bodies import read_object
from gateway.endpoints.tenant import tenant_of
from gateway.openai.parse import decode_object, validated
from gateway.openai.stored import (
    ChatDeleted,
    UpdateChat,
    chat_list,
    message_list,
    metadata_wanted,
    stored_chat,
)
from gateway.parts import Parts
from gateway.replies import json_response
from gateway.stored.api import ChatFilter
from ingest.stores_api import PageRequest

Limit = Annotated[int, Query(ge=1, le=100)]
Order = Literal["asc", "desc"]


def stored_chats_router(parts: Parts) -> APIRouter:
    router = APIRouter()
    store = parts.chats

    @router.get("/v1/chat/completions")
    async def list_chat_completions(
        request: Request,
        after: str | None = None,
        model: str | None = None,
        limit: Limit = 20,
        order: Order = "asc",
    ) -> Response:
        wanted = ChatFilter(model=model, metadata=metadata_wanted(request.query_params))
        page = PageRequest(after=after, limit=limit, ascending=order == "asc")
        return json_response(chat_list(await store.page(wanted, page, tenant=tenant_of(request))))

    @router.get("/v1/chat/completions/{completion_id}")
    async def retrieve_chat_completion(request: Request, completion_id: str) -> Response:
        return json_response(stored_chat(await store.get(completion_id, tenant=tenant_of(request))))

    @router.post("/v1/chat/completions/{completion_id}")
    async def update_chat_completion(request: Request, completion_id: str) -> Response:
        raw = await read_object(request, parts.max_body_bytes)
        body = validated(decode_object(raw), UpdateChat)
        changed = await store.update(completion_id, body.metadata or {}, tenant=tenant_of(request))
        return json_response(stored_chat(changed))

    @router.delete("/v1/chat/completions/{completion_id}")
    async def delete_chat_completion(request: Request, completion_id: str) -> Response:
        await store.delete(completion_id, tenant=tenant_of(request))
        return json_response(
            ChatDeleted(object="chat.completion.deleted", id=completion_id, deleted=True)
        )

    @router.get("/v1/chat/completions/{completion_id}/messages")
    async def list_chat_messages(
        request: Request,
        completion_id: str,
        after: str | None = None,
        limit: Limit = 20,
        order: Order = "asc",
    ) -> Response:
        kept = await store.get(completion_id, tenant=tenant_of(request))
        return json_response(message_list(kept, after=after, limit=limit, ascending=order == "asc"))

    return router
