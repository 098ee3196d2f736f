"""/v1/embeddings as OpenAI's own client sees it."""

import base64
import struct
from typing import Any

import httpx
import openai
import pytest

from ingest.fake_embeddings import fake_embeddings
from retrieval.api import SearchUnavailable
from tests.gateway.fakes import Running, Start

MODEL = "fake-embedder"


def served(start: Start) -> Running:
    return start(embeddings=fake_embeddings())


def post(gateway: Running, **fields: Any) -> httpx.Response:
    body = {"model": MODEL, "input": "two words", **fields}
    return httpx.post(f"{gateway.url}/v1/embeddings", json=body)


async def test_vectors_come_in_order_with_the_embedders_own_count(start: Start) -> None:
    gateway = served(start)
    texts = ["two words", "größe", "two words"]
    answer = gateway.client().embeddings.create(model=MODEL, input=texts)
    expected = (await fake_embeddings().embed(texts)).vectors
    assert [one.embedding for one in answer.data] == [list(vector) for vector in expected]
    assert [one.index for one in answer.data] == [0, 1, 2]
    assert (answer.usage.prompt_tokens, answer.usage.total_tokens) == (11, 11)
    assert answer.model == MODEL


def test_packed_and_plain_numbers_are_the_same(start: Start) -> None:
    gateway = served(start)
    plain = post(gateway, encoding_format="float").json()["data"][0]["embedding"]
    packed = post(gateway, encoding_format="base64").json()["data"][0]["embedding"]
    assert list(struct.unpack(f"<{len(plain)}f", base64.b64decode(packed))) == plain


@pytest.mark.parametrize(
    ("fields", "status", "code", "param"),
    [
        ({"model": "other"}, 404, "model_not_found", "model"),
        ({"dimensions": 32}, 400, "invalid_value", "dimensions"),
        ({"input": [1, 2]}, 400, "unsupported_parameter", "input"),
        ({"input": [[1, 2]]}, 400, "unsupported_parameter", "input"),
        ({"input": ""}, 400, "empty_string", "input"),
        ({"input": ["a", ""]}, 400, "empty_string", "input[1]"),
        ({"input": []}, 400, "array_below_min_length", "input"),
        ({"input": ["a"] * 2049}, 400, "array_above_max_length", "input"),
        ({"encoding_format": "int8"}, 400, "invalid_value", "encoding_format"),
        ({"truncate": True}, 400, "unknown_parameter", "truncate"),
    ],
)
def test_what_cannot_be_embedded_is_refused(
    start: Start, fields: dict[str, Any], status: int, code: str, param: str
) -> None:
    answer = post(served(start), **fields)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (status, code, param)


def test_a_text_over_the_models_window_is_refused_with_its_numbers(start: Start) -> None:
    gateway = served(start)
    with pytest.raises(openai.BadRequestError) as refused:
        gateway.client().embeddings.create(model=MODEL, input=["fine", "word " * 255])
    assert refused.value.code == "context_length_exceeded"
    assert "257" in refused.value.message
    assert "256" in refused.value.message
    body = refused.value.response.json()
    assert (body["ringway"]["num_tokens"], body["ringway"]["limit"]) == (257, 256)


def test_the_models_own_dimension_may_be_named(start: Start) -> None:
    assert post(served(start), dimensions=64).status_code == 200


class Away:
    async def facts(self) -> Any:
        raise SearchUnavailable("the embedder cannot be reached")

    async def embed(self, texts: Any) -> Any:
        raise AssertionError


def test_an_embedder_that_is_away_is_a_passing_trouble(start: Start) -> None:
    answer = post(start(embeddings=Away()))
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "search_unavailable")
    assert answer.headers["retry-after"] == "1"


def test_its_model_is_listed_while_it_is_there_and_only_then(start: Start) -> None:
    listed = [model.id for model in served(start).client().models.list()]
    assert listed == ["fake", MODEL]
    assert [model.id for model in start(embeddings=Away()).client().models.list()] == ["fake"]
