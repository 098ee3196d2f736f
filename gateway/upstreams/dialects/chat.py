"""OpenAI's chat completions, streamed: what every OpenAI-compatible server understands.

Text and tool calls come back, no ids. Knows the wire format of requests and chunks only.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import msgspec

from engines.api import (
    AnswerEndEvent,
    EngineLost,
    EngineRefused,
    Event,
    FinishReason,
    GenerateRequest,
    Reads,
    TextEvent,
    TextLogprob,
    ToolCallEvent,
)
from gateway.upstreams.config import Kind
from gateway.upstreams.dialect import Ending, reason_of
from gateway.upstreams.refusals import error_in_stream

PASSES: Mapping[Kind, tuple[str, ...]] = {
    Kind.OPENAI: (
        "reasoning_effort",
        "verbosity",
        "prompt_cache_retention",
        "prompt_cache_options",
        "safety_identifier",
    ),
    Kind.VLLM: ("reasoning_effort",),
    Kind.SGLANG: ("reasoning_effort",),
}
"""What each kind of server reads of these. The others would ignore them, which nobody would see."""


class ChatDialect:
    """OpenAI's own service has newer names, and is told nothing it does not know."""

    path = "/v1/chat/completions"
    reads = Reads.CHAT
    inline_tokens = 262_144

    def __init__(self, kind: Kind) -> None:
        self._is_openai = kind is Kind.OPENAI
        self.passes = PASSES.get(kind, ())

    def body(self, request: GenerateRequest, model: str) -> bytes:
        if request.chat is None:
            raise EngineRefused("this model is served by an upstream that reads chat messages only")
        limit = "max_completion_tokens" if self._is_openai else "max_tokens"
        sampling = request.sampling
        body: dict[str, object] = {
            **request.chat,
            "model": model,
            "stream": True,
            "stream_options": {"include_usage": True},
            limit: request.max_new_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "seed": sampling.seed,
        }
        if request.n > 1:
            body["n"] = request.n
        if sampling.top_logprobs is not None:
            body |= {"logprobs": True, "top_logprobs": sampling.top_logprobs}
        body |= _penalties(request) | self._own(request)
        return msgspec.json.encode(body)

    def reader(self, request: GenerateRequest) -> "ChatReader":
        return ChatReader(request)

    def _own(self, request: GenerateRequest) -> dict[str, object]:
        """What only one kind of server knows."""
        if not self._is_openai:
            top_k = request.sampling.top_k
            return {"cache_salt": salt(request.cache_key), **({"top_k": top_k} if top_k else {})}
        own: dict[str, object] = {"prompt_cache_key": salt(request.cache_key)}
        if request.service_tier != "default":
            own["service_tier"] = request.service_tier
        return own


def _penalties(request: GenerateRequest) -> dict[str, object]:
    sampling = request.sampling
    told = {
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "logit_bias": {str(key): bias for key, bias in sampling.logit_bias.items()},
    }
    return {name: value for name, value in told.items() if value}


def salt(cache_key: str) -> str:
    """What keeps one caller's cached prompts from another's; tells neither name."""
    return hashlib.sha256(cache_key.encode()).hexdigest()[:32]


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _ToolCall(msgspec.Struct):
    index: int = 0
    id: str | None = None
    function: _Function | None = None


class _Delta(msgspec.Struct):
    content: str | None = None
    refusal: str | None = None
    tool_calls: list[_ToolCall] | None = None


class _Top(msgspec.Struct):
    token: str
    logprob: float
    bytes: list[int] | None = None


class _Logprob(_Top):
    top_logprobs: list[_Top] | None = None


class _Logprobs(msgspec.Struct):
    content: list[_Logprob] | None = None


class _Choice(msgspec.Struct):
    index: int = 0
    delta: _Delta | None = None
    logprobs: _Logprobs | None = None
    finish_reason: str | None = None


class _Details(msgspec.Struct):
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None
    completion_tokens_details: _Details | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: msgspec.Raw | None = None


CHUNKS = msgspec.json.Decoder(_Chunk)


@dataclass(slots=True)
class _Answer:
    num_pieces: int = 0
    reason: FinishReason | None = None


class ChatReader:
    def __init__(self, request: GenerateRequest) -> None:
        self._num_tokens = len(request.prompt_ids)
        self._answers = [_Answer() for _ in range(request.n)]
        self._usage: _Usage | None = None
        self._last = FinishReason.STOP

    def read(self, data: bytes) -> Iterable[Event]:
        try:
            chunk = CHUNKS.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            told = error_in_stream(data, num_tokens=self._num_tokens)
            raise told or EngineLost(f"the upstream sent a malformed chunk: {error}") from error
        if chunk.error is not None or chunk.choices is None:
            told = error_in_stream(data, num_tokens=self._num_tokens)
            if told is not None:
                raise told
        if chunk.usage is not None:
            self._usage = chunk.usage
        for choice in chunk.choices or ():
            yield from self._choice(choice)

    def ending(self) -> Ending | None:
        if any(answer.reason is None for answer in self._answers):
            return None
        usage = self._usage
        if usage is None:
            return Ending(reason=self._last, prompt_tokens=None, completion_tokens=None)
        read, said = usage.prompt_tokens_details, usage.completion_tokens_details
        return Ending(
            reason=self._last,
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            cached_tokens=(read and read.cached_tokens) or 0,
            reasoning_tokens=(said and said.reasoning_tokens) or 0,
        )

    def _choice(self, choice: _Choice) -> Iterator[Event]:
        if not 0 <= choice.index < len(self._answers):
            raise EngineLost(f"the upstream sent an answer that was not asked for: {choice.index}")
        answer = self._answers[choice.index]
        for event in _events(choice):
            answer.num_pieces += 1
            yield event
        if choice.finish_reason is None or answer.reason is not None:
            return
        answer.reason = reason_of(choice.finish_reason)
        if answer.reason is None:
            raise EngineLost(f"the upstream ended its answer: {choice.finish_reason}")
        self._last = answer.reason
        if len(self._answers) > 1:
            yield AnswerEndEvent(
                index=choice.index, reason=answer.reason, completion_tokens=answer.num_pieces
            )


def _events(choice: _Choice) -> Iterator[Event]:
    delta = choice.delta or _Delta()
    logprobs = (choice.logprobs and choice.logprobs.content) or ()
    text = (delta.content or "") + (delta.refusal or "")
    if text or logprobs:
        yield TextEvent(text, choice.index, tuple(_logprob(one) for one in logprobs))
    for call in delta.tool_calls or ():
        function = call.function or _Function()
        yield ToolCallEvent(
            call=call.index,
            id=call.id or None,
            name=function.name or None,
            arguments=function.arguments or "",
            index=choice.index,
        )


def _logprob(told: _Top) -> TextLogprob:
    top = told.top_logprobs if isinstance(told, _Logprob) else None
    return TextLogprob(
        text=told.token,
        token_bytes=tuple(told.token.encode() if told.bytes is None else told.bytes),
        logprob=told.logprob,
        top=tuple(_logprob(one) for one in top or ()),
    )
