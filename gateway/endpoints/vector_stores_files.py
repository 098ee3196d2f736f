"""/v1/vector_stores/{id}/files: attach, list, get, change attributes, content, detach."""

from functools import partial

from fastapi import APIRouter, Request, Response

from gateway.bodies import off_loop, read_body
from gateway.endpoints.tenant import tenant_of
from gateway.endpoints.vector_stores import PageDep
from gateway.openai.vector_stores_bodies import CreateStoreFile, UpdateStoreFile, parse_body
from gateway.openai.vector_stores_objects import (
    Deleted,
    content_object,
    list_object,
    store_file_object,
)
from gateway.parts import Parts
from gateway.replies import json_response
from ingest.stores_api import StoreFileStatus, VectorStores

FILES = "/v1/vector_stores/{store_id}/files"


def vector_stores_files_router(parts: Parts) -> APIRouter:
    router = APIRouter()

    def stores_of(request: Request) -> VectorStores:
        return parts.library.for_tenant(tenant_of(request)).stores

    @router.post(FILES)
    async def attach_file(store_id: str, request: Request) -> Response:
        raw = await read_body(request, parts.max_body_bytes)
        body = await off_loop(partial(parse_body, kind=CreateStoreFile), raw)
        return json_response(
            store_file_object(await stores_of(request).add_file(store_id, body.value()))
        )

    @router.get(FILES)
    async def list_files(
        request: Request, store_id: str, page: PageDep, filter: StoreFileStatus | None = None
    ) -> Response:
        found = await stores_of(request).list_files(store_id, page, status=filter)
        return json_response(list_object(found, store_file_object, lambda one: one.file_id))

    @router.get(FILES + "/{file_id}")
    async def retrieve_file(request: Request, store_id: str, file_id: str) -> Response:
        return json_response(
            store_file_object(await stores_of(request).get_file(store_id, file_id))
        )

    @router.post(FILES + "/{file_id}")
    async def update_attributes(store_id: str, file_id: str, request: Request) -> Response:
        body = parse_body(await read_body(request, parts.max_body_bytes), UpdateStoreFile)
        changed = await stores_of(request).update_file(store_id, file_id, body.value())
        return json_response(store_file_object(changed))

    @router.get(FILES + "/{file_id}/content")
    async def retrieve_content(request: Request, store_id: str, file_id: str) -> Response:
        file = await stores_of(request).get_file(store_id, file_id)
        return json_response(
            content_object(
                await parts.library.for_tenant(tenant_of(request)).text(file_id), file.attributes
            )
        )

    @router.delete(FILES + "/{file_id}")
    async def detach_file(request: Request, store_id: str, file_id: str) -> Response:
        await stores_of(request).remove_file(store_id, file_id)
        return json_response(Deleted(id=file_id, object="vector_store.file.deleted", deleted=True))

    return router
