"""The body of POST /v1/completions as OpenAI defines it, with Ringway's own fields.

Knows types and ranges, what is refused by name, and the Asks that a body means: one per prompt.
"""

from array import array
from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, model_validator

from engines.api import Sampling
from gateway.api import Fidelity, UnsupportedParameter
from gateway.asks import Ask, RawPrompt
from gateway.long_json import ObjectReader
from gateway.openai.chat import (
    MAX_ANSWERS,
    MAX_SEED,
    Bias,
    FidelityName,
    Penalty,
    Stops,
    StreamOptions,
    Tier,
)
from gateway.openai.parse import decode_object, validated
from gateway.openai.wire import Wire

DEFAULT_MAX_TOKENS = 16
"""OpenAI's: completions are short unless the caller says more."""

MAX_PROMPTS = 128
Id = Annotated[int, Field(ge=0, lt=2**31)]
Ids = Annotated[list[Id], Field(min_length=1)]
Texts = Annotated[list[str], Field(min_length=1, max_length=MAX_PROMPTS)]
IdLists = Annotated[list[Ids], Field(min_length=1, max_length=MAX_PROMPTS)]

SERVED_FIDELITIES = ("auto", "full", "hierarchical")


class CompletionBody(Wire):
    """Null means "not given" everywhere, as in OpenAI's API."""

    model: str = Field(min_length=1)
    prompt: str | Texts | Ids | IdLists
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    stop: Stops | None = None
    seed: Annotated[int, Field(ge=-MAX_SEED, lt=MAX_SEED)] | None = None
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    logit_bias: dict[Annotated[str, Field(pattern=r"^\d{1,9}$")], Bias] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    n: Annotated[int, Field(ge=1, le=MAX_ANSWERS)] | None = None
    echo: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: str | None = None
    service_tier: Tier | None = None
    prompt_cache_key: str | None = None
    fidelity: FidelityName | None = None
    allow_fallback: bool | None = None

    @model_validator(mode="after")
    def _fields_agree(self) -> "CompletionBody":
        if self.stream_options is not None and not self.stream:
            raise ValueError("stream_options|is only allowed when 'stream' is true")
        if self.fidelity is not None and self.fidelity not in SERVED_FIDELITIES:
            served = ", ".join(SERVED_FIDELITIES)
            raise ValueError(f"fidelity|is one of {served} here: a raw prompt cannot be searched")
        return self


def parse_completion(raw: bytes | ObjectReader) -> CompletionBody:
    """Raises InvalidRequest or UnsupportedParameter, naming the first thing that is wrong."""
    body = decode_object(raw)
    _refuse(body)
    known = {name: value for name, value in body.items() if name not in ("suffix", "best_of")}
    return validated(known, CompletionBody)


def _refuse(body: Mapping[str, object]) -> None:
    if body.get("suffix") is not None:
        raise UnsupportedParameter("suffix")
    if body.get("best_of") not in (None, 1):
        raise UnsupportedParameter("best_of", detail="ask for several answers with 'n'")
    if body.get("echo") and body.get("logprobs") is not None:
        raise UnsupportedParameter("echo", detail="with 'logprobs', of which a prompt has none")


def completion_asks(body: CompletionBody, *, seed: int) -> list[Ask]:
    """One per prompt, in order. `seed` is used when the caller gave none."""
    fidelity = Fidelity(body.fidelity or "auto")
    allow = body.allow_fallback
    return [
        Ask(
            model=body.model,
            turns=(),
            raw=RawPrompt(prompt),
            fidelity=fidelity,
            allow_fallback=fidelity is Fidelity.AUTO if allow is None else allow,
            max_new_tokens=body.max_tokens or DEFAULT_MAX_TOKENS,
            sampling=_sampling(body, seed),
            stop=tuple(body.stop or ()),
            service_tier="default" if body.service_tier in (None, "auto") else body.service_tier,
            stream=bool(body.stream),
            include_usage=bool(body.stream_options and body.stream_options.include_usage),
            cache_key=body.prompt_cache_key or "",
            n=body.n or 1,
        )
        for prompt in _prompts(body.prompt)
    ]


def _prompts(prompt: "str | list[str] | list[int] | list[list[int]]") -> "list[str | array[int]]":
    if isinstance(prompt, str):
        return [prompt]
    texts = [one for one in prompt if isinstance(one, str)]
    ids = [one for one in prompt if isinstance(one, int)]
    lists = [array("i", one) for one in prompt if isinstance(one, list)]
    return [*texts, *([array("i", ids)] if ids else []), *lists]


def _sampling(body: CompletionBody, seed: int) -> Sampling:
    return Sampling(
        temperature=1.0 if body.temperature is None else body.temperature,
        top_p=1.0 if body.top_p is None else body.top_p,
        seed=(seed if body.seed is None else body.seed) % MAX_SEED,
        presence_penalty=body.presence_penalty or 0.0,
        frequency_penalty=body.frequency_penalty or 0.0,
        logit_bias={int(key): bias for key, bias in (body.logit_bias or {}).items()},
        top_logprobs=body.logprobs,
    )
