"""Every field that OpenAI's own client knows is served here or refused by its name."""

import json
from collections.abc import Mapping
from typing import Any

import openai.types
import pytest
from openai.types import chat, responses
from pydantic import BaseModel

from gateway.api import UnsupportedParameter
from gateway.openai.chat import ChatBody
from gateway.openai.completions import CompletionBody, parse_completion
from gateway.openai.embeddings import EmbeddingsBody
from gateway.openai.fields import REFUSED as CHAT_REFUSED
from gateway.openai.parse import parse_chat
from gateway.openai.responses_bodies import REFUSED as RESPONSES_REFUSED
from gateway.openai.responses_bodies import ResponseBody, parse_response

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
COMPLETION_REFUSED: Mapping[str, object] = {"suffix": "x", "best_of": 2}


def fields_of(params: Any) -> set[str]:
    """Those of a TypedDict of the client; `stream` is in the variants of it."""
    return {*params.__annotations__, "stream"}


@pytest.mark.parametrize(
    ("params", "body", "refused"),
    [
        (chat.completion_create_params.CompletionCreateParamsBase, ChatBody, CHAT_REFUSED),
        (
            responses.response_create_params.ResponseCreateParamsBase,
            ResponseBody,
            RESPONSES_REFUSED,
        ),
        (
            openai.types.completion_create_params.CompletionCreateParamsBase,
            CompletionBody,
            COMPLETION_REFUSED,
        ),
        (openai.types.EmbeddingCreateParams, EmbeddingsBody, ()),
    ],
    ids=["chat", "responses", "completions", "embeddings"],
)
def test_no_field_of_openai_s_client_is_unknown(
    params: Any, body: type[BaseModel], refused: Any
) -> None:
    known = {*body.model_fields, *refused}
    assert fields_of(params) - known - {"stream"} == set()
    assert not set(refused) & set(body.model_fields) - {"background"}


@pytest.mark.parametrize("name", sorted(CHAT_REFUSED))
def test_a_field_of_chat_that_is_not_served_is_refused_by_name(name: str) -> None:
    with pytest.raises(UnsupportedParameter) as caught:
        parse_chat(json.dumps({**CHAT, name: {}}).encode())
    assert caught.value.param == name
    parse_chat(json.dumps({**CHAT, name: None}).encode())


@pytest.mark.parametrize("name", sorted(RESPONSES_REFUSED))
def test_a_field_of_responses_that_is_not_served_is_refused_by_name(name: str) -> None:
    with pytest.raises(UnsupportedParameter) as caught:
        parse_response(json.dumps({"model": "m", "input": "hi", name: {"a": 1}}).encode())
    assert caught.value.param == name


@pytest.mark.parametrize("name", COMPLETION_REFUSED)
def test_a_field_of_completions_that_is_not_served_is_refused_by_name(name: str) -> None:
    body = {"model": "m", "prompt": "hi", name: COMPLETION_REFUSED[name]}
    with pytest.raises(UnsupportedParameter) as caught:
        parse_completion(json.dumps(body).encode())
    assert caught.value.param == name
