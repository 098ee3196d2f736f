"""SGLang's own /generate with token ids in and out, one answer; knows no chat."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import msgspec

from engines.api import (
    EngineLost,
    EngineRefused,
    Event,
    GenerateRequest,
    Grammar,
    GrammarKind,
    Reads,
    TokenEvent,
    TokenLogprob,
)
from gateway.upstreams.dialect import INLINE_IDS, Ending, ids_json, reason_of
from gateway.upstreams.dialects.chat import salt
from gateway.upstreams.refusals import error_in_stream

ANY_OBJECT = '{"type": "object"}'

T = TypeVar("T")


class SglangDialect:
    path = "/generate"
    reads = Reads.IDS
    passes: tuple[str, ...] = ()
    inline_tokens = INLINE_IDS

    def body(self, request: GenerateRequest, model: str) -> bytes:
        if request.n != 1:
            raise EngineRefused("several answers by token ids are not supported for SGLang")
        sampling = request.sampling
        params: dict[str, object] = {
            "max_new_tokens": request.max_new_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k or -1,
            "sampling_seed": sampling.seed % 2**31,
            "presence_penalty": sampling.presence_penalty,
            "frequency_penalty": sampling.frequency_penalty,
            "stop_token_ids": list(request.stop_ids),
        }
        if sampling.logit_bias:
            params["logit_bias"] = {str(key): bias for key, bias in sampling.logit_bias.items()}
        if request.grammar is not None:
            params |= _constraint(request.grammar)
        body: dict[str, object] = {
            "input_ids": ids_json(request.prompt_ids),
            "sampling_params": params,
            "stream": True,
            "extra_key": salt(request.cache_key),
        }
        if sampling.top_logprobs is not None:
            body |= {"return_logprob": True, "top_logprobs_num": sampling.top_logprobs}
        return msgspec.json.encode(body)

    def reader(self, request: GenerateRequest) -> "SglangReader":
        return SglangReader(request)


def _constraint(grammar: Grammar) -> dict[str, object]:
    match grammar.kind:
        case GrammarKind.JSON_OBJECT:
            return {"json_schema": ANY_OBJECT}
        case GrammarKind.JSON_SCHEMA:
            return {"json_schema": grammar.source}
        case GrammarKind.REGEX:
            return {"regex": grammar.source}
        case _:
            raise EngineRefused(f"SGLang has no {grammar.kind} grammars")


_Told = tuple[float, int, str | None]


class _Finish(msgspec.Struct):
    type: str
    message: str | None = None


class _Meta(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    finish_reason: _Finish | None = None
    output_token_logprobs: list[_Told] = []
    output_top_logprobs: list[list[_Told] | None] = []


class _Chunk(msgspec.Struct):
    meta_info: _Meta | None = None
    output_ids: list[int] | None = None


CHUNKS = msgspec.json.Decoder(_Chunk)


class SglangReader:
    """Ids and logprobs come whole in every chunk, or, from a server told so, only the new ones."""

    def __init__(self, request: GenerateRequest) -> None:
        self._num_prompt = len(request.prompt_ids)
        self._stop_ids = frozenset(request.stop_ids)
        self._num_seen = 0
        self._end: Ending | None = None

    def read(self, data: bytes) -> Iterable[Event]:
        try:
            chunk = CHUNKS.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise EngineLost(f"the upstream sent a malformed chunk: {error}") from error
        if chunk.meta_info is None or chunk.output_ids is None:
            told = error_in_stream(data, num_tokens=self._num_prompt)
            raise told or EngineLost("the upstream sent a chunk without token ids")
        yield from self._tokens(chunk.meta_info, chunk.output_ids)
        finish = chunk.meta_info.finish_reason
        if finish is not None:
            self._end = _ending(chunk.meta_info, finish)

    def ending(self) -> Ending | None:
        return self._end

    def _tokens(self, meta: _Meta, output_ids: Sequence[int]) -> Iterator[Event]:
        total = meta.completion_tokens
        num_new = total - self._num_seen
        ids = _newest(output_ids, num_new)
        tokens = _newest(meta.output_token_logprobs, num_new)
        tops = _newest(meta.output_top_logprobs, num_new)
        self._num_seen = total
        for i, token_id in enumerate(ids):
            if token_id in self._stop_ids:
                continue
            logprob = tokens[i][0] if i < len(tokens) else None
            top = (tops[i] if i < len(tops) else None) or ()
            yield TokenEvent(token_id, logprob, tuple(TokenLogprob(t[1], t[0]) for t in top))


def _newest(values: Sequence[T], num_new: int) -> Sequence[T]:
    return values[max(0, len(values) - num_new) :] if num_new > 0 else ()


def _ending(meta: _Meta, finish: _Finish) -> Ending:
    reason = reason_of(finish.type)
    if reason is None:
        raise EngineLost(f"the upstream ended its answer: {finish.message or finish.type}")
    return Ending(
        reason=reason,
        prompt_tokens=meta.prompt_tokens,
        completion_tokens=meta.completion_tokens,
        cached_tokens=meta.cached_tokens,
    )
