"""/v1/files: upload, list, get, content, delete."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Literal
from urllib.parse import quote

from fastapi import APIRouter, Query, Request, Response
from starlette.datastructures import FormData, UploadFile
from starlette.requests import ClientDisconnect
from starlette.responses import StreamingResponse

from gateway.api import ClientLeft, InvalidRequest, UnsupportedParameter
from gateway.bodies import capped, refuse_announced
from gateway.endpoints.tenant import tenant_of
from gateway.openai.files import (
    ANCHOR,
    EXPIRY_FIELDS,
    PURPOSES,
    SECONDS,
    FileDeleted,
    file_list,
    file_object,
    seconds_of,
)
from gateway.parts import Parts
from gateway.replies import json_response
from ingest.api import Library

READ_BYTES = 2**20
FORM_OVERHEAD_BYTES = 2**20
"""Boundaries and small fields around the file."""


def files_router(parts: Parts) -> APIRouter:
    router = APIRouter()

    def library_of(request: Request) -> Library:
        return parts.library.for_tenant(tenant_of(request))

    @router.post("/v1/files")
    async def create_file(request: Request) -> Response:
        async with spooled_form(request, parts.max_upload_bytes) as form:
            upload = the_upload(form, "file", also=("purpose", *EXPIRY_FIELDS))
            if upload is None:
                raise missing("file")
            record = await library_of(request).add(
                filename=upload.filename or "upload",
                purpose=_purpose_of(form),
                body=bytes_of(upload),
                expires_after_s=seconds_of(_text(form, ANCHOR), _text(form, SECONDS)),
            )
        return json_response(file_object(record))

    @router.get("/v1/files")
    async def list_files(
        request: Request,
        after: str | None = None,
        limit: Annotated[int, Query(ge=1, le=10_000)] = 10_000,
        order: Literal["asc", "desc"] = "desc",
        purpose: str | None = None,
    ) -> Response:
        page = await library_of(request).list(
            after=after, limit=limit, ascending=order == "asc", purpose=purpose
        )
        return json_response(file_list(page))

    @router.get("/v1/files/{file_id}")
    async def retrieve_file(request: Request, file_id: str) -> Response:
        return json_response(file_object(await library_of(request).get(file_id)))

    @router.get("/v1/files/{file_id}/content")
    async def retrieve_file_content(request: Request, file_id: str) -> Response:
        record = await library_of(request).get(file_id)
        return StreamingResponse(
            library_of(request).content(file_id),
            media_type="application/octet-stream",
            headers={
                "content-disposition": f"attachment; filename*=UTF-8''{quote(record.filename)}",
                "content-length": str(record.num_bytes),
            },
        )

    @router.delete("/v1/files/{file_id}")
    async def delete_file(request: Request, file_id: str) -> Response:
        await library_of(request).delete(file_id)
        return json_response(FileDeleted(id=file_id, object="file", deleted=True))

    return router


@asynccontextmanager
async def spooled_form(request: Request, limit_bytes: int) -> AsyncIterator[FormData]:
    """A form with one file of at most `limit_bytes`, spooled to disk: JavaScript's SDK sends the
    other fields after the file. Raises BodyTooLarge or ClientLeft."""
    limit = limit_bytes + FORM_OVERHEAD_BYTES
    refuse_announced(request, limit)
    capped_request = Request(request.scope, capped(request.receive, limit))
    try:
        async with capped_request.form(max_files=1, max_fields=16) as form:
            yield form
    except ClientDisconnect:
        raise ClientLeft from None


def the_upload(form: FormData, name: str, *, also: Sequence[str]) -> UploadFile | None:
    """The form's file. Raises UnsupportedParameter for a field that is none of these."""
    for field in form:
        if field != name and field not in also:
            raise UnsupportedParameter(field)
    upload = form.get(name)
    return upload if isinstance(upload, UploadFile) else None


def missing(name: str) -> InvalidRequest:
    return InvalidRequest(
        f"Missing required parameter: '{name}'.", param=name, code="missing_required_parameter"
    )


async def bytes_of(upload: UploadFile) -> AsyncIterator[bytes]:
    while chunk := await upload.read(READ_BYTES):
        yield chunk


def _purpose_of(form: FormData) -> str:
    purpose = _text(form, "purpose")
    if purpose is None:
        raise missing("purpose")
    if purpose not in PURPOSES:
        raise InvalidRequest(
            f"Invalid value for 'purpose': served are {', '.join(PURPOSES)}.",
            param="purpose",
            code="invalid_value",
        )
    return purpose


def _text(form: FormData, name: str) -> str | None:
    value = form.get(name)
    return value if isinstance(value, str) else None
