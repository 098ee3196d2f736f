"""The parts of OpenAI's objects, and of Ringway's own, that an evaluation reads."""

from collections.abc import Mapping

import msgspec


class PromptDetails(msgspec.Struct):
    cached_tokens: int | None = None


class UsageObject(msgspec.Struct):
    prompt_tokens: int
    completion_tokens: int = 0
    prompt_tokens_details: PromptDetails | None = None


class RingwayObject(msgspec.Struct):
    route: str
    prompt_tokens: int | None = None
    tokens_read: int | None = None
    coverage: float | None = None
    recall: float | None = None
    evidence: float | None = None
    timing_ms: Mapping[str, float] = {}


class Delta(msgspec.Struct):
    content: str | None = None


class Choice(msgspec.Struct):
    delta: Delta = msgspec.field(default_factory=Delta)


class ErrorObject(msgspec.Struct):
    message: str = ""
    code: str | int | None = None


class LengthFacts(msgspec.Struct):
    limit: int | None = None


class ErrorBody(msgspec.Struct):
    error: ErrorObject
    ringway: LengthFacts | None = None


class Chunk(msgspec.Struct):
    choices: list[Choice] = []
    usage: UsageObject | None = None
    ringway: RingwayObject | None = None
    error: ErrorObject | None = None


class Counted(msgspec.Struct):
    count: int


class Completion(msgspec.Struct):
    usage: UsageObject


class ModelObject(msgspec.Struct):
    id: str


class ModelList(msgspec.Struct):
    data: list[ModelObject]
