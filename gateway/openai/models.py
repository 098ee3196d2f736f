"""OpenAI's model objects as they go over the wire."""

from typing import Literal, TypedDict


class ModelObject(TypedDict):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str


class ModelList(TypedDict):
    object: Literal["list"]
    data: list[ModelObject]


def model_object(name: str, created: int) -> ModelObject:
    return ModelObject(id=name, object="model", created=created, owned_by="ringway")
