"""GET /v1/models and one of them."""

from fastapi import APIRouter, Response

from gateway.api import UnknownModel
from gateway.openai.models import ModelList, model_object
from gateway.parts import Parts
from gateway.planner import Planner
from gateway.replies import json_response


def models_router(parts: Parts, planner: Planner) -> APIRouter:
    router = APIRouter()
    created = int(parts.clock())

    @router.get("/v1/models")
    async def list_models() -> Response:
        info = await planner.info()
        return json_response(ModelList(object="list", data=[model_object(info.model, created)]))

    @router.get("/v1/models/{model:path}")
    async def retrieve_model(model: str) -> Response:
        info = await planner.info()
        if model != info.model:
            raise UnknownModel(model)
        return json_response(model_object(info.model, created))

    return router
