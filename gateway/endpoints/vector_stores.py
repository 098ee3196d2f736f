"""/v1/vector_stores: create, list, get, modify, delete, search."""

from functools import partial
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Request, Response

from gateway.api import InvalidRequest
from gateway.bodies import off_loop, read_body
from gateway.endpoints.tenant import tenant_of
from gateway.openai.vector_stores_bodies import CreateStore, SearchStore, UpdateStore, parse_body
from gateway.openai.vector_stores_objects import Deleted, hits_object, list_object, store_object
from gateway.parts import Parts
from gateway.replies import json_response
from ingest.stores_api import PageRequest, VectorStores
from retrieval.api import QueryRejected

SEARCH_DEADLINE_S = 30.0


def page_request(
    after: str | None = None,
    before: str | None = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    order: Literal["asc", "desc"] = "desc",
) -> PageRequest:
    return PageRequest(after=after, before=before, limit=limit, ascending=order == "asc")


PageDep = Annotated[PageRequest, Depends(page_request)]


def vector_stores_router(parts: Parts) -> APIRouter:
    router = APIRouter()

    def stores_of(request: Request) -> VectorStores:
        return parts.library.for_tenant(tenant_of(request)).stores

    @router.post("/v1/vector_stores")
    async def create_vector_store(request: Request) -> Response:
        raw = await read_body(request, parts.max_body_bytes)
        body = await off_loop(partial(parse_body, kind=CreateStore), raw)
        return json_response(store_object(await stores_of(request).create(body.value())))

    @router.get("/v1/vector_stores")
    async def list_vector_stores(request: Request, page: PageDep) -> Response:
        found = await stores_of(request).list(page)
        return json_response(list_object(found, store_object, lambda one: one.id))

    @router.get("/v1/vector_stores/{store_id}")
    async def retrieve_vector_store(request: Request, store_id: str) -> Response:
        return json_response(store_object(await stores_of(request).get(store_id)))

    @router.post("/v1/vector_stores/{store_id}")
    async def modify_vector_store(store_id: str, request: Request) -> Response:
        body = parse_body(await read_body(request, parts.max_body_bytes), UpdateStore)
        return json_response(store_object(await stores_of(request).update(store_id, body.value())))

    @router.delete("/v1/vector_stores/{store_id}")
    async def delete_vector_store(request: Request, store_id: str) -> Response:
        await stores_of(request).delete(store_id)
        return json_response(Deleted(id=store_id, object="vector_store.deleted", deleted=True))

    @router.post("/v1/vector_stores/{store_id}/search")
    async def search_vector_store(store_id: str, request: Request) -> Response:
        body = parse_body(await read_body(request, parts.max_body_bytes), SearchStore)
        search = body.value(SEARCH_DEADLINE_S)
        try:
            found = await stores_of(request).search(store_id, search)
        except QueryRejected as error:
            raise InvalidRequest(
                f"Invalid value for 'query': {error}.", param="query", code="query_rejected"
            ) from error
        return json_response(hits_object(search.queries, found))

    return router
