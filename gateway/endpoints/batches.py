"""/v1/batches: create, list, get, cancel. Running them is `gateway.batches.runner`'s."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from gateway.api import InvalidRequest
from gateway.batches.api import MAX_INPUT_BYTES, WINDOW_S, Batch, BatchStore
from gateway.bodies import read_body
from gateway.endpoints.tenant import caller_of, tenant_of
from gateway.openai.batches import CreateBatchBody, batch_list, batch_object
from gateway.openai.vector_stores_bodies import parse_body
from gateway.parts import Parts
from gateway.replies import json_response
from ingest.api import FileRecord

INPUT_PURPOSE = "batch"


def batches_router(parts: Parts, store: BatchStore) -> APIRouter:
    router = APIRouter()

    @router.post("/v1/batches")
    async def create_batch(request: Request) -> Response:
        body = parse_body(await read_body(request, parts.max_body_bytes), CreateBatchBody)
        library = parts.library.for_tenant(tenant_of(request))
        refuse_input(await library.get(body.input_file_id))
        now = int(parts.clock())
        batch = Batch(
            id=f"batch_{parts.new_id()}",
            caller=caller_of(request),
            endpoint=body.endpoint,
            input_file_id=body.input_file_id,
            created_at=now,
            expires_at=now + WINDOW_S,
            metadata=body.metadata or {},
            output_life_s=body.output_expires_after.seconds if body.output_expires_after else None,
        )
        await store.add(batch)
        return json_response(batch_object(batch))

    @router.get("/v1/batches")
    async def list_batches(
        request: Request,
        after: str | None = None,
        limit: Annotated[int, Query(ge=1, le=100)] = 20,
    ) -> Response:
        page = await store.page(tenant=tenant_of(request), after=after, limit=limit)
        return json_response(batch_list(page))

    @router.get("/v1/batches/{batch_id}")
    async def retrieve_batch(request: Request, batch_id: str) -> Response:
        return json_response(batch_object(await store.get(batch_id, tenant=tenant_of(request))))

    @router.post("/v1/batches/{batch_id}/cancel")
    async def cancel_batch(request: Request, batch_id: str) -> Response:
        batch = await store.cancel(batch_id, tenant=tenant_of(request), now=int(parts.clock()))
        return json_response(batch_object(batch))

    return router


def refuse_input(record: FileRecord) -> None:
    if record.purpose != INPUT_PURPOSE:
        raise InvalidRequest(
            f"Invalid value for 'input_file_id': {record.id} was uploaded with purpose "
            f"'{record.purpose}'; a batch reads files of purpose '{INPUT_PURPOSE}'.",
            param="input_file_id",
            code="invalid_file_purpose",
        )
    if record.num_bytes > MAX_INPUT_BYTES:
        raise InvalidRequest(
            f"Invalid value for 'input_file_id': {record.id} has {record.num_bytes} bytes; a "
            f"batch's input has at most {MAX_INPUT_BYTES}.",
            param="input_file_id",
            code="file_too_large",
        )
