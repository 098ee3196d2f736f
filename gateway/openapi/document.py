"""The gateway's OpenAPI document: FastAPI's paths and parameters, our bodies and answers."""

from collections.abc import Mapping
from typing import cast

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from gateway.openai.errors import ErrorBody
from gateway.openapi.operations import OPERATIONS, Operation
from gateway.openapi.typed import REF, Schema, TypedSchemas

Document = dict[str, object]

SECURITY: Schema = {"key": {"type": "http", "scheme": "bearer"}}
OPEN_PATHS = ("/health/", "/metrics")


def document_of(app: FastAPI, *, needs_key: bool) -> Document:
    """Built anew each time; who serves it keeps it."""
    document: Document = get_openapi(
        title=app.title, version=app.version, routes=app.routes, openapi_version="3.1.0"
    )
    writer = _Writer()
    paths = cast(dict[str, dict[str, Schema]], document["paths"])
    for path, operations in paths.items():
        for method, spec in operations.items():
            writer.write(spec, OPERATIONS.get((method, path), Operation()))
            if needs_key and not path.startswith(OPEN_PATHS):
                spec["security"] = [{"key": []}]
    document["components"] = {
        "schemas": dict(sorted(writer.schemas().items())),
        "securitySchemes": SECURITY,
    }
    return document


class _Writer:
    def __init__(self) -> None:
        bodies = [one.body for one in OPERATIONS.values() if one.body is not None]
        self._refs, self._bodies = _body_schemas(bodies)
        self._answers = TypedSchemas()
        self._answers.components.update(self._bodies)
        self._error = self._answers.of(ErrorBody)

    def write(self, spec: Schema, operation: Operation) -> None:
        if operation.body is not None:
            spec["requestBody"] = _required("application/json", self._refs[operation.body])
        elif operation.form is not None:
            spec["requestBody"] = _required("multipart/form-data", operation.form)
        spec["responses"] = self._responses(operation)

    def schemas(self) -> dict[str, Schema]:
        return self._answers.components

    def _responses(self, operation: Operation) -> Schema:
        answer = {} if operation.answer is None else self._answers.of(operation.answer)
        content: Schema = {operation.media_type: {"schema": answer}}
        if operation.streams:
            content["text/event-stream"] = {"schema": {"type": "string"}}
        told = self._error if operation.refuses else {}
        return {
            "200": {"description": "As asked for.", "content": content},
            "default": {
                "description": "What went wrong.",
                "content": {"application/json": {"schema": told}},
            },
        }


def _body_schemas(
    bodies: list[type[BaseModel]],
) -> tuple[Mapping[type[BaseModel], Schema], dict[str, Schema]]:
    refs, found = models_json_schema(
        [(body, "validation") for body in bodies], ref_template=REF + "{model}"
    )
    return {body: refs[(body, "validation")] for body in bodies}, found.get("$defs", {})


def _required(media_type: str, schema: Mapping[str, object]) -> Schema:
    return {"required": True, "content": {media_type: {"schema": schema}}}
