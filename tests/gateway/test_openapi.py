"""The OpenAPI document holds: no request breaks the gateway, answers are as described, and what
the document forbids is refused."""

import asyncio
from collections.abc import Iterator
from typing import Any, cast

import pytest
import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import Case, GenerationMode
from schemathesis.checks import CheckFunction, not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
)
from starlette.testclient import TestClient

from gateway.app import create_app
from gateway.batches.sql import SqlBatches
from gateway.openapi.operations import OPERATIONS
from gateway.tables import metadata
from ingest.database import Database
from ingest.fake_embeddings import fake_embeddings
from tests.gateway.fakes import make_parts

EXAMPLES = 5
CHECKS = cast(
    "list[CheckFunction]",
    [
        not_a_server_error,
        response_schema_conformance,
        content_type_conformance,
        negative_data_rejection,
    ],
)

Ids = dict[str, str]


@pytest.fixture(scope="module")
def app() -> Iterator[FastAPI]:
    database = asyncio.run(Database.connect("sqlite://", metadata))
    yield create_app(make_parts(batches=SqlBatches(database), embeddings=fake_embeddings()))
    asyncio.run(database.aclose())


@pytest.fixture(scope="module")
def ids(app: FastAPI) -> Ids:
    """Things that are there, so that not every id that is tried is unknown."""
    with TestClient(app) as client:

        def made(path: str, **options: Any) -> str:
            return str(client.post(path, **options).json()["id"])

        line = b'{"custom_id":"a","method":"POST","url":"/v1/embeddings","body":{}}'
        text = {"file": ("a.txt", b"The lease ends in March.")}
        file_id = made("/v1/files", files=text, data={"purpose": "user_data"})
        lines = made("/v1/files", files={"file": ("in", line)}, data={"purpose": "batch"})
        batch = {"input_file_id": lines, "endpoint": "/v1/embeddings", "completion_window": "24h"}
        return {
            "file_id": file_id,
            "model": "fake",
            "store_id": made("/v1/vector_stores", json={"file_ids": [file_id]}),
            "response_id": made("/v1/responses", json={"model": "fake", "input": "hi"}),
            "batch_id": made("/v1/batches", json=batch),
        }


@pytest.fixture(scope="module")
def api(app: FastAPI, ids: Ids) -> Any:
    schema = schemathesis.openapi.from_asgi("/openapi.json", app)

    def known_places(context: Any, path_parameters: Any) -> Any:
        """Of the ids that are tried, those of even length are ones that exist."""
        for name, value in (path_parameters or {}).items():
            if isinstance(value, str) and len(value) % 2 == 0 and name in ids:
                path_parameters[name] = ids[name]
        return path_parameters

    def known_model(context: Any, body: Any) -> Any:
        if isinstance(body, dict) and isinstance(body.get("model"), str) and body["model"]:
            body["model"] = "fake"
        return body

    schema.hook("map_path_parameters")(known_places)
    schema.hook("map_body")(known_model)
    return schema


@pytest.mark.parametrize("mode", GenerationMode)
@pytest.mark.parametrize("place", [place for place in OPERATIONS if place[1].startswith("/v1/")])
def test_every_operation_keeps_to_the_document(
    api: Any, place: tuple[str, str], mode: GenerationMode
) -> None:
    method, path = place
    operation = api[path][method]

    @settings(
        max_examples=EXAMPLES,
        phases=[Phase.explicit, Phase.generate],
        derandomize=True,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def holds(case: Case[Any]) -> None:
        case.call_and_validate(checks=CHECKS)

    try:
        holds()
    except Unsatisfiable:
        assert mode is GenerationMode.NEGATIVE, "there is always a request that is right"


def test_every_path_is_described(app: FastAPI) -> None:
    served = {
        (method, path)
        for path, operations in app.openapi()["paths"].items()
        for method in operations
        if not path.startswith("/admin/")
    }
    assert served == set(OPERATIONS)
