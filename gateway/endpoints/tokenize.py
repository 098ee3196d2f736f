"""POST /v1/tokenize and /v1/detokenize: a prompt's tokens as they would be sent, and back."""

import asyncio
from array import array

import msgspec
from fastapi import APIRouter, Request, Response

from gateway.api import CountKind, InvalidRequest
from gateway.bodies import off_loop, read_object
from gateway.openai.tokenize import (
    DetokenizeAnswer,
    TokenizeAnswer,
    parse_detokenize,
    parse_tokenize,
)
from gateway.parts import Parts
from gateway.planner import Planner, Reading
from gateway.prompt.model_text import ModelText
from gateway.replies import json_response


def tokenize_router(parts: Parts, planner: Planner) -> APIRouter:
    router = APIRouter()

    @router.post("/v1/tokenize")
    async def tokenize(request: Request) -> Response:
        raw = await read_object(request, parts.max_body_bytes)
        ask, options = await off_loop(parse_tokenize, raw)
        reading = await planner.read(ask, opens_answer=options.add_generation_prompt)
        spells = bool(options.return_token_strs)
        return json_response(msgspec.Raw(await asyncio.to_thread(_answer, reading, spells)))

    @router.post("/v1/detokenize")
    async def detokenize(request: Request) -> Response:
        raw = await read_object(request, parts.max_body_bytes)
        name, ids = await off_loop(parse_detokenize, raw)
        view, info = await planner.views.of(name)
        model = await view.model_text(info)
        text = await asyncio.to_thread(_text, model, ids)
        return json_response(DetokenizeAnswer(prompt=text))

    return router


def _answer(reading: Reading, spells: bool) -> bytes:
    ids, kind = reading.prompt.ids, reading.count_kind
    shown = ids.tolist() if kind is CountKind.EXACT else []
    name_of = reading.model.encoder.tokenizer.id_to_token
    answer = TokenizeAnswer(
        count=reading.num_tokens,
        max_model_len=max(reading.info.context_tokens.values(), default=0),
        tokens=shown,
        token_strs=[name_of(one) or "" for one in shown] if spells else None,
        count_kind=kind.value,
    )
    return msgspec.json.encode(answer)


def _text(model: ModelText, ids: "array[int]") -> str:
    """Raises InvalidRequest."""
    if model.count_kind is not CountKind.EXACT:
        raise InvalidRequest(
            "The tokens of this model are not known here.", param="model", code="invalid_value"
        )
    num_ids = model.encoder.num_ids
    if ids and max(ids) >= num_ids:
        raise InvalidRequest(
            f"Invalid value for 'tokens': {max(ids)} is no token id; the model has {num_ids}.",
            param="tokens",
            code="invalid_value",
        )
    text: str = model.encoder.tokenizer.decode(ids.tolist(), skip_special_tokens=False)
    return text
