"""vLLM's completions with token ids in and out; knows no chat.

`return_token_ids` needs vLLM 0.10.2; an older server's text is taken as text.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec

from engines.api import (
    AnswerEndEvent,
    EngineLost,
    Event,
    FinishReason,
    GenerateRequest,
    Grammar,
    GrammarKind,
    Reads,
    TextEvent,
    TokenEvent,
    TokenLogprob,
)
from gateway.upstreams.dialect import INLINE_IDS, Ending, ids_json, reason_of
from gateway.upstreams.dialects.chat import salt
from gateway.upstreams.refusals import error_in_stream

ID_PREFIX = "token_id:"


class VllmDialect:
    path = "/v1/completions"
    reads = Reads.IDS
    passes: tuple[str, ...] = ()
    inline_tokens = INLINE_IDS

    def body(self, request: GenerateRequest, model: str) -> bytes:
        sampling = request.sampling
        body: dict[str, object] = {
            "model": model,
            "prompt": ids_json(request.prompt_ids),
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_token_ids": True,
            "max_tokens": request.max_new_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k,
            "seed": sampling.seed,
            "presence_penalty": sampling.presence_penalty,
            "frequency_penalty": sampling.frequency_penalty,
            "stop_token_ids": list(request.stop_ids),
            "cache_salt": salt(request.cache_key),
            "n": request.n,
        }
        if sampling.logit_bias:
            body["logit_bias"] = {str(key): bias for key, bias in sampling.logit_bias.items()}
        if sampling.top_logprobs is not None:
            body |= {"logprobs": sampling.top_logprobs, "return_tokens_as_token_ids": True}
        if request.grammar is not None:
            body["structured_outputs"] = structured(request.grammar)
        return msgspec.json.encode(body)

    def reader(self, request: GenerateRequest) -> "VllmReader":
        return VllmReader(request)


def structured(grammar: Grammar) -> dict[str, object]:
    match grammar.kind:
        case GrammarKind.JSON_OBJECT:
            return {"json_object": True}
        case GrammarKind.JSON_SCHEMA:
            return {"json": grammar.source}
        case GrammarKind.REGEX:
            return {"regex": grammar.source}
        case _:
            return {"grammar": grammar.source}


class _Logprobs(msgspec.Struct):
    tokens: list[str] = []
    token_logprobs: list[float | None] = []
    top_logprobs: list[dict[str, float] | None] | None = None


class _Choice(msgspec.Struct):
    index: int = 0
    text: str = ""
    token_ids: list[int] | None = None
    logprobs: _Logprobs | None = None
    finish_reason: str | None = None


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None


CHUNKS = msgspec.json.Decoder(_Chunk)


@dataclass(slots=True)
class _Answer:
    num_tokens: int = 0
    reason: FinishReason | None = None


class VllmReader:
    def __init__(self, request: GenerateRequest) -> None:
        self._num_prompt = len(request.prompt_ids)
        self._stop_ids = frozenset(request.stop_ids)
        self._answers = [_Answer() for _ in range(request.n)]
        self._usage: _Usage | None = None
        self._last = FinishReason.STOP

    def read(self, data: bytes) -> Iterable[Event]:
        try:
            chunk = CHUNKS.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise EngineLost(f"the upstream sent a malformed chunk: {error}") from error
        if chunk.choices is None:
            told = error_in_stream(data, num_tokens=self._num_prompt)
            if told is not None:
                raise told
        self._usage = chunk.usage or self._usage
        for choice in chunk.choices or ():
            yield from self._choice(choice)

    def ending(self) -> Ending | None:
        if any(answer.reason is None for answer in self._answers):
            return None
        usage = self._usage
        if usage is None:
            return Ending(reason=self._last, prompt_tokens=None, completion_tokens=None)
        details = usage.prompt_tokens_details
        return Ending(
            reason=self._last,
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            cached_tokens=(details and details.cached_tokens) or 0,
        )

    def _choice(self, choice: _Choice) -> Iterator[Event]:
        if not 0 <= choice.index < len(self._answers):
            raise EngineLost(f"the upstream sent an answer that was not asked for: {choice.index}")
        answer = self._answers[choice.index]
        for event in self._events(choice):
            answer.num_tokens += 1
            yield event
        if choice.finish_reason is None:
            return
        answer.reason = reason_of(choice.finish_reason)
        if answer.reason is None:
            raise EngineLost(f"the upstream ended its answer: {choice.finish_reason}")
        self._last = answer.reason
        if len(self._answers) > 1:
            yield AnswerEndEvent(
                index=choice.index, reason=answer.reason, completion_tokens=answer.num_tokens
            )

    def _events(self, choice: _Choice) -> Iterator[Event]:
        if choice.token_ids is None:
            if choice.text:
                yield TextEvent(choice.text, choice.index)
            return
        logprobs = choice.logprobs or _Logprobs()
        for i, token_id in enumerate(choice.token_ids):
            if token_id not in self._stop_ids:
                yield _token(token_id, i, logprobs, choice.index)


def _token(token_id: int, i: int, logprobs: _Logprobs, index: int) -> TokenEvent:
    if i >= len(logprobs.token_logprobs):
        return TokenEvent(token_id, index=index)
    tops = logprobs.top_logprobs or ()
    top = (tops[i] if i < len(tops) else None) or {}
    ranked = sorted(top.items(), key=lambda one: -one[1])
    return TokenEvent(
        token_id,
        logprobs.token_logprobs[i],
        tuple(
            TokenLogprob(int(name.removeprefix(ID_PREFIX)), logprob)
            for name, logprob in ranked
            if name.startswith(ID_PREFIX)
        ),
        index,
    )
