"""/v1/vector_stores/{id}/file_batches: create, get, cancel, list files."""

from functools import partial

from fastapi import APIRouter, Request, Response

from gateway.bodies import off_loop, read_body
from gateway.endpoints.tenant import tenant_of
from gateway.endpoints.vector_stores import PageDep
from gateway.openai.vector_stores_bodies import CreateBatch, parse_body
from gateway.openai.vector_stores_objects import batch_object, list_object, store_file_object
from gateway.parts import Parts
from gateway.replies import json_response
from ingest.stores_api import StoreFileStatus, VectorStores

BATCHES = "/v1/vector_stores/{store_id}/file_batches"


def vector_stores_batches_router(parts: Parts) -> APIRouter:
    router = APIRouter()

    def stores_of(request: Request) -> VectorStores:
        return parts.library.for_tenant(tenant_of(request)).stores

    @router.post(BATCHES)
    async def create_batch(store_id: str, request: Request) -> Response:
        raw = await read_body(request, parts.max_body_bytes)
        body = await off_loop(partial(parse_body, kind=CreateBatch), raw)
        return json_response(
            batch_object(await stores_of(request).add_batch(store_id, body.value()))
        )

    @router.get(BATCHES + "/{batch_id}")
    async def retrieve_batch(request: Request, store_id: str, batch_id: str) -> Response:
        return json_response(batch_object(await stores_of(request).get_batch(store_id, batch_id)))

    @router.post(BATCHES + "/{batch_id}/cancel")
    async def cancel_batch(request: Request, store_id: str, batch_id: str) -> Response:
        return json_response(
            batch_object(await stores_of(request).cancel_batch(store_id, batch_id))
        )

    @router.get(BATCHES + "/{batch_id}/files")
    async def list_batch_files(
        request: Request,
        store_id: str,
        batch_id: str,
        page: PageDep,
        filter: StoreFileStatus | None = None,
    ) -> Response:
        found = await stores_of(request).list_files(
            store_id, page, status=filter, batch_id=batch_id
        )
        return json_response(list_object(found, store_file_object, lambda one: one.file_id))

    return router
