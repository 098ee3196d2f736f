"""The body of POST /v1/chat/completions as OpenAI defines it, with Ringway's own fields.

Knows types and ranges; `fields` knows what is refused by name, `parse` how errors are said.
"""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from engines.api import Sampling
from gateway.api import Fidelity
from gateway.asks import Ask
from gateway.openai.chat_tools import Format, ToolFields, format_of, tools_of
from gateway.openai.messages import Message, amiss, turn_of
from gateway.openai.wire import Metadata, Wire
from ingest.api import InlineDocument

MAX_SEED = 2**63
MAX_VECTOR_STORES = 8
MAX_ANSWERS = 128

PASSED = ("reasoning_effort", "verbosity", "prompt_cache_retention", "prompt_cache_options")
"""Fields that go to engines that know them as they came; elsewhere they are refused."""


class Document(Wire):
    id: str = Field(min_length=1, max_length=256)
    text: str


class CacheOptions(Wire):
    mode: Literal["implicit", "explicit"] | None = None
    ttl: Literal["30m"] | None = None


class StreamOptions(Wire):
    include_usage: bool | None = None
    include_obfuscation: Literal[False] | None = None


Stops = Annotated[
    list[Annotated[str, Field(min_length=1)]],
    Field(max_length=4),
    BeforeValidator(lambda stop: [stop] if isinstance(stop, str) else stop),
]
Penalty = Annotated[float, Field(ge=-2, le=2)]
Bias = Annotated[float, Field(ge=-100, le=100)]
Tier = Literal["auto", "default", "flex", "priority"]
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
Verbosity = Literal["low", "medium", "high"]
FidelityName = Literal["auto", "retrieval", "hierarchical", "full"]


class ChatBody(ToolFields):
    """Null means "not given" everywhere, as in OpenAI's API."""

    model: str = Field(min_length=1)
    messages: list[Message] = Field(min_length=1)
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    stop: Stops | None = None
    seed: Annotated[int, Field(ge=-MAX_SEED, lt=MAX_SEED)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    logit_bias: dict[Annotated[str, Field(pattern=r"^\d{1,9}$")], Bias] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    service_tier: Tier | None = None
    prompt_cache_key: str | None = None
    user: str | None = None
    safety_identifier: str | None = None
    metadata: Metadata | None = None
    n: Annotated[int, Field(ge=1, le=MAX_ANSWERS)] | None = None
    store: bool | None = None
    modalities: list[Literal["text"]] | None = None
    response_format: Format | None = None
    reasoning_effort: Effort | None = None
    verbosity: Verbosity | None = None
    prompt_cache_retention: Literal["in_memory", "24h"] | None = None
    prompt_cache_options: CacheOptions | None = None
    fidelity: FidelityName | None = None
    allow_fallback: bool | None = None
    documents: list[Document] | None = None
    vector_store_ids: (
        Annotated[
            list[Annotated[str, Field(min_length=1, max_length=64)]],
            Field(min_length=1, max_length=MAX_VECTOR_STORES),
        ]
        | None
    ) = None

    @model_validator(mode="after")
    def _fields_agree(self) -> "ChatBody":
        both = (self.max_tokens, self.max_completion_tokens)
        if None not in both and both[0] != both[1]:
            raise ValueError("max_completion_tokens|differs from 'max_tokens'; send one of them")
        if self.top_logprobs is not None and not self.logprobs:
            raise ValueError("top_logprobs|is only allowed when 'logprobs' is true")
        if self.stream_options is not None and not self.stream:
            raise ValueError("stream_options|is only allowed when 'stream' is true")
        for i, message in enumerate(self.messages):
            if complaint := amiss(message):
                raise ValueError(f"messages[{i}].{complaint}")
        ids = [document.id for document in self.documents or ()]
        if len(set(ids)) != len(ids):
            raise ValueError("documents|has two documents with one id")
        if self.vector_store_ids and self.fidelity not in (None, "auto", "retrieval"):
            raise ValueError(
                "vector_store_ids|can only be read with fidelity 'retrieval' or 'auto'"
            )
        return self


def to_ask(body: ChatBody, *, seed: int) -> Ask:
    """`seed` is used when the caller gave none."""
    fidelity = Fidelity(body.fidelity or "auto")
    allow = body.allow_fallback
    return Ask(
        model=body.model,
        turns=tuple(turn_of(message, i) for i, message in enumerate(body.messages)),
        documents=tuple(InlineDocument(d.id, d.text) for d in body.documents or ()),
        vector_store_ids=tuple(dict.fromkeys(body.vector_store_ids or ())),
        fidelity=fidelity,
        allow_fallback=fidelity is Fidelity.AUTO if allow is None else allow,
        max_new_tokens=body.max_completion_tokens or body.max_tokens,
        sampling=_sampling(body, seed),
        stop=tuple(body.stop or ()),
        service_tier="default" if body.service_tier in (None, "auto") else body.service_tier,
        stream=bool(body.stream),
        include_usage=bool(body.stream_options and body.stream_options.include_usage),
        metadata=body.metadata or {},
        cache_key=body.prompt_cache_key or "",
        n=body.n or 1,
        tools=tools_of(body),
        json_format=format_of(body.response_format),
        passed={name: value for name in PASSED if (value := _given(body, name)) is not None},
        end_user=body.safety_identifier or body.user or "",
    )


def _given(body: ChatBody, name: str) -> object:
    value = getattr(body, name)
    return value.model_dump(exclude_none=True) if isinstance(value, Wire) else value


def _sampling(body: ChatBody, seed: int) -> Sampling:
    wants_logprobs = bool(body.logprobs)
    return Sampling(
        temperature=1.0 if body.temperature is None else body.temperature,
        top_p=1.0 if body.top_p is None else body.top_p,
        seed=(seed if body.seed is None else body.seed) % MAX_SEED,
        presence_penalty=body.presence_penalty or 0.0,
        frequency_penalty=body.frequency_penalty or 0.0,
        logit_bias={int(key): bias for key, bias in (body.logit_bias or {}).items()},
        top_logprobs=(body.top_logprobs or 0) if wants_logprobs else None,
    )
