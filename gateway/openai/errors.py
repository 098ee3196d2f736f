"""OpenAI's error object as it goes over the wire; knows no exception."""

from typing import NotRequired, TypedDict

from gateway.api import Route


class ErrorObject(TypedDict):
    message: str
    type: str
    param: str | None
    code: str | None


class LengthFacts(TypedDict):
    """Why a prompt was too long, for programs: beside `error`, whose shape stays OpenAI's."""

    num_tokens: int
    limit: int
    fits: Route | None


class ErrorBody(TypedDict):
    error: ErrorObject
    ringway: NotRequired[LengthFacts]
