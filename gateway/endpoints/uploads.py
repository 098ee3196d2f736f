"""/v1/uploads: create, add parts, complete, cancel."""

from functools import partial

from fastapi import APIRouter, Request, Response

from gateway.bodies import off_loop, read_body
from gateway.endpoints.files import bytes_of, missing, spooled_form, the_upload
from gateway.endpoints.tenant import tenant_of
from gateway.openai.uploads import CompleteUpload, CreateUpload, part_object, upload_object
from gateway.openai.vector_stores_bodies import parse_body
from gateway.parts import Parts
from gateway.replies import json_response
from ingest.uploads_api import MAX_PART_BYTES, Uploads


def uploads_router(parts: Parts) -> APIRouter:
    router = APIRouter()

    def uploads_of(request: Request) -> Uploads:
        return parts.library.for_tenant(tenant_of(request)).uploads

    @router.post("/v1/uploads")
    async def create_upload(request: Request) -> Response:
        raw = await read_body(request, parts.max_body_bytes)
        body = parse_body(raw, CreateUpload)
        return json_response(upload_object(await uploads_of(request).create(body.value())))

    @router.post("/v1/uploads/{upload_id}/parts")
    async def add_part(upload_id: str, request: Request) -> Response:
        async with spooled_form(request, MAX_PART_BYTES) as form:
            data = the_upload(form, "data", also=())
            if data is None:
                raise missing("data")
            part = await uploads_of(request).add_part(upload_id, bytes_of(data))
        return json_response(part_object(part))

    @router.post("/v1/uploads/{upload_id}/complete")
    async def complete_upload(upload_id: str, request: Request) -> Response:
        raw = await read_body(request, parts.max_body_bytes)
        body = await off_loop(partial(parse_body, kind=CompleteUpload), raw)
        record = await uploads_of(request).complete(upload_id, body.part_ids, md5=body.md5)
        return json_response(upload_object(record))

    @router.post("/v1/uploads/{upload_id}/cancel")
    async def cancel_upload(request: Request, upload_id: str) -> Response:
        return json_response(upload_object(await uploads_of(request).cancel(upload_id)))

    return router
