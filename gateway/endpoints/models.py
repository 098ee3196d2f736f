"""GET /v1/models and one of them."""

from fastapi import APIRouter, Request, Response

from gateway.api import UnknownModel
from gateway.embeddings import EmbeddingsService
from gateway.endpoints.tenant import caller_of
from gateway.openai.models import ModelList, model_object
from gateway.parts import Parts
from gateway.planner import Planner
from gateway.replies import json_response


def models_router(parts: Parts, planner: Planner, embeddings: EmbeddingsService) -> APIRouter:
    router = APIRouter()
    created = int(parts.clock())

    async def granted(request: Request) -> list[str]:
        """What is served, as far as the caller's key may use it."""
        models = caller_of(request).grants.models
        served = [*await planner.views.models(), *await embeddings.models()]
        return [name for name in served if models is None or name in models]

    @router.get("/v1/models")
    async def list_models(request: Request) -> Response:
        data = [model_object(name, created) for name in await granted(request)]
        return json_response(ModelList(object="list", data=data))

    @router.get("/v1/models/{model:path}")
    async def retrieve_model(request: Request, model: str) -> Response:
        if model not in await granted(request):
            raise UnknownModel(model)
        return json_response(model_object(model, created))

    return router
