"""/v1/files: upload, list, get, content, delete."""

from collections.abc import AsyncIterator
from typing import Annotated, Literal
from urllib.parse import quote

from fastapi import APIRouter, Query, Request, Response
from starlette.datastructures import FormData, UploadFile
from starlette.responses import StreamingResponse

from gateway.api import InvalidRequest, UnsupportedParameter
from gateway.bodies import capped, refuse_announced
from gateway.openai.files import PURPOSES, FileDeleted, file_list, file_object
from gateway.parts import Parts
from gateway.replies import json_response

READ_BYTES = 2**20
FORM_OVERHEAD_BYTES = 2**20
"""Boundaries and small fields around the file."""


def files_router(parts: Parts) -> APIRouter:
    router = APIRouter()
    library = parts.library

    @router.post("/v1/files")
    async def create_file(request: Request) -> Response:
        limit = parts.max_upload_bytes + FORM_OVERHEAD_BYTES
        refuse_announced(request, limit)
        capped_request = Request(request.scope, capped(request.receive, limit))
        # The form is spooled to disk: JavaScript's SDK sends the purpose after the file.
        async with capped_request.form(max_files=1, max_fields=16) as form:
            upload, purpose = _checked(form)
            record = await library.add(
                filename=upload.filename or "upload", purpose=purpose, body=_bytes_of(upload)
            )
        return json_response(file_object(record))

    @router.get("/v1/files")
    async def list_files(
        after: str | None = None,
        limit: Annotated[int, Query(ge=1, le=10_000)] = 10_000,
        order: Literal["asc", "desc"] = "desc",
        purpose: str | None = None,
    ) -> Response:
        page = await library.list(
            after=after, limit=limit, ascending=order == "asc", purpose=purpose
        )
        return json_response(file_list(page))

    @router.get("/v1/files/{file_id}")
    async def retrieve_file(file_id: str) -> Response:
        return json_response(file_object(await library.get(file_id)))

    @router.get("/v1/files/{file_id}/content")
    async def retrieve_file_content(file_id: str) -> Response:
        record = await library.get(file_id)
        return StreamingResponse(
            library.content(file_id),
            media_type="application/octet-stream",
            headers={
                "content-disposition": f"attachment; filename*=UTF-8''{quote(record.filename)}",
                "content-length": str(record.num_bytes),
            },
        )

    @router.delete("/v1/files/{file_id}")
    async def delete_file(file_id: str) -> Response:
        await library.delete(file_id)
        return json_response(FileDeleted(id=file_id, object="file", deleted=True))

    return router


def _checked(form: FormData) -> tuple[UploadFile, str]:
    for name in form:
        if name not in ("file", "purpose"):
            raise UnsupportedParameter(name)
    upload, purpose = form.get("file"), form.get("purpose")
    if not isinstance(upload, UploadFile):
        raise _missing("file")
    if not isinstance(purpose, str):
        raise _missing("purpose")
    if purpose not in PURPOSES:
        raise InvalidRequest(
            f"Invalid value for 'purpose': served are {', '.join(PURPOSES)}.",
            param="purpose",
            code="invalid_value",
        )
    return upload, purpose


def _missing(name: str) -> InvalidRequest:
    return InvalidRequest(
        f"Missing required parameter: '{name}'.", param=name, code="missing_required_parameter"
    )


async def _bytes_of(upload: UploadFile) -> AsyncIterator[bytes]:
    while chunk := await upload.read(READ_BYTES):
        yield chunk
