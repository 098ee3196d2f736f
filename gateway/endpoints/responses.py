"""/v1/responses: create, get, delete, cancel, and what a response was read from."""

from typing import Annotated, Literal

import msgspec
from fastapi import APIRouter, Query, Request, Response

from gateway.api import InvalidRequest, UnsupportedParameter
from gateway.bodies import off_loop, read_object
from gateway.endpoints.tenant import tenant_of
from gateway.openai.compacting import parse_compact
from gateway.openai.responses_bodies import parse_response
from gateway.openai.responses_objects import ResponseDeleted
from gateway.parts import Parts
from gateway.replies import json_response
from gateway.responses.service import ResponsesService, page_of

MAX_ITEMS = 100


def responses_router(parts: Parts, service: ResponsesService) -> APIRouter:
    router = APIRouter()
    store = parts.responses

    @router.post("/v1/responses")
    async def create_response(request: Request) -> Response:
        raw = await read_object(request, parts.max_body_bytes)
        body = await off_loop(parse_response, raw)
        del raw
        return await service.reply(body, request.receive, tenant=tenant_of(request))

    @router.post("/v1/responses/compact")
    async def compact_response(request: Request) -> Response:
        raw = await read_object(request, parts.max_body_bytes)
        body = await off_loop(parse_compact, raw)
        del raw
        return await service.compact(body, request.receive, tenant=tenant_of(request))

    @router.get("/v1/responses/{response_id}")
    async def retrieve_response(
        request: Request, response_id: str, stream: bool = False
    ) -> Response:
        if stream:
            raise UnsupportedParameter("stream", detail="a kept response is given whole")
        kept = await store.get(response_id, tenant=tenant_of(request))
        return json_response(msgspec.Raw(kept.body))

    @router.delete("/v1/responses/{response_id}")
    async def delete_response(request: Request, response_id: str) -> Response:
        await store.delete(response_id, tenant=tenant_of(request))
        return json_response(ResponseDeleted(id=response_id, object="response", deleted=True))

    @router.post("/v1/responses/{response_id}/cancel")
    async def cancel_response(request: Request, response_id: str) -> Response:
        await store.get(response_id, tenant=tenant_of(request))
        raise InvalidRequest(
            "Cannot cancel a response that was not created with background=true.",
            param=None,
            code="response_not_cancellable",
        )

    @router.get("/v1/responses/{response_id}/input_items")
    async def list_input_items(
        request: Request,
        response_id: str,
        after: str | None = None,
        limit: Annotated[int, Query(ge=1, le=MAX_ITEMS)] = 20,
        order: Literal["asc", "desc"] = "desc",
    ) -> Response:
        items = await service.input_items(response_id, tenant=tenant_of(request))
        page = page_of(items, after=after, limit=limit, ascending=order == "asc")
        return json_response(page)

    return router
