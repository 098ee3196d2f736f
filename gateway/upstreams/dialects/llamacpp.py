"""llama.cpp's own /completion: token ids in, text out, one answer; knows no chat.

Its stream leaves out the ids of a character's first tokens, so that its text is what is taken.
"""

from collections.abc import Iterable

import msgspec

from engines.api import (
    EngineLost,
    EngineRefused,
    Event,
    GenerateRequest,
    GrammarKind,
    ProgressEvent,
    Reads,
    TextEvent,
    TextLogprob,
)
from gateway.upstreams.dialect import INLINE_IDS, Ending, ids_json, reason_of
from gateway.upstreams.refusals import error_in_stream

GREATEST_SEED = 2**32 - 1


class LlamaCppDialect:
    path = "/completion"
    reads = Reads.IDS
    passes: tuple[str, ...] = ()
    inline_tokens = INLINE_IDS

    def body(self, request: GenerateRequest, model: str) -> bytes:
        if request.n != 1:
            raise EngineRefused("several answers by token ids are not supported for llama.cpp")
        sampling = request.sampling
        body: dict[str, object] = {
            "prompt": ids_json(request.prompt_ids),
            "model": model,
            "stream": True,
            "return_progress": True,
            "cache_prompt": True,
            "n_predict": request.max_new_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k,
            "min_p": 0.0,
            "repeat_penalty": 1.0,
            "seed": sampling.seed % GREATEST_SEED,
            "presence_penalty": sampling.presence_penalty,
            "frequency_penalty": sampling.frequency_penalty,
            "logit_bias": [[key, bias] for key, bias in sampling.logit_bias.items()],
        }
        if sampling.top_logprobs is not None:
            body["n_probs"] = max(1, sampling.top_logprobs)
        return msgspec.json.encode(body | _constraint(request))

    def reader(self, request: GenerateRequest) -> "LlamaCppReader":
        return LlamaCppReader(request)


def _constraint(request: GenerateRequest) -> dict[str, object]:
    grammar = request.grammar
    if grammar is None:
        return {}
    if grammar.kind is GrammarKind.JSON_OBJECT:
        return {"json_schema": {"type": "object"}}
    if grammar.kind is GrammarKind.JSON_SCHEMA:
        return {"json_schema": msgspec.Raw(grammar.source.encode())}
    raise EngineRefused(f"llama.cpp has no {grammar.kind} grammars")


class _Top(msgspec.Struct):
    token: str
    logprob: float
    bytes: list[int] | None = None


class _Logprob(_Top):
    top_logprobs: list[_Top] = []


class _Progress(msgspec.Struct):
    total: int
    processed: int


class _Chunk(msgspec.Struct):
    content: str = ""
    stop: bool | None = None
    stop_type: str = ""
    tokens_predicted: int = 0
    tokens_evaluated: int = 0
    tokens_cached: int = 0
    timings: dict[str, float] | None = None
    prompt_progress: _Progress | None = None
    completion_probabilities: list[_Logprob] = []


CHUNKS = msgspec.json.Decoder(_Chunk)


class LlamaCppReader:
    def __init__(self, request: GenerateRequest) -> None:
        self._num_prompt = len(request.prompt_ids)
        self._num_top = request.sampling.top_logprobs or 0
        self._end: Ending | None = None

    def read(self, data: bytes) -> Iterable[Event]:
        try:
            chunk = CHUNKS.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise EngineLost(f"the upstream sent a malformed chunk: {error}") from error
        if chunk.prompt_progress is not None:
            done = min(chunk.prompt_progress.processed, chunk.prompt_progress.total)
            yield ProgressEvent(done, chunk.prompt_progress.total)
        elif chunk.stop is None:
            told = error_in_stream(data, num_tokens=self._num_prompt)
            raise told or EngineLost("the upstream sent a chunk of another kind")
        if chunk.content or chunk.completion_probabilities:
            logprobs = tuple(_logprob(one, self._num_top) for one in chunk.completion_probabilities)
            yield TextEvent(chunk.content, 0, logprobs)
        if chunk.stop:
            self._end = _ending(chunk)

    def ending(self) -> Ending | None:
        return self._end


def _ending(chunk: _Chunk) -> Ending:
    reason = reason_of(chunk.stop_type)
    if reason is None:
        raise EngineLost(f"the upstream ended its answer: {chunk.stop_type or 'no reason given'}")
    return Ending(
        reason=reason,
        prompt_tokens=chunk.tokens_evaluated,
        completion_tokens=chunk.tokens_predicted,
        cached_tokens=int((chunk.timings or {}).get("cache_n", 0)),
    )


def _logprob(told: _Top, num_top: int) -> TextLogprob:
    top = told.top_logprobs[:num_top] if isinstance(told, _Logprob) else []
    return TextLogprob(
        text=told.token,
        token_bytes=tuple(told.token.encode() if told.bytes is None else told.bytes),
        logprob=told.logprob,
        top=tuple(_logprob(one, 0) for one in top),
    )
