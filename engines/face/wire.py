"""How requests, events and failures look between a gateway and an engine; does no I/O.

A request is msgpack with its ids packed as little-endian int32; the answer is a stream of
server-sent events, each one JSON object under the event's name, or the JSON of a refusal. A
deadline crosses as seconds left, since clocks of two processes do not compare.
"""

import math
from collections.abc import Mapping

import msgspec

from engines.api import (
    AnswerEndEvent,
    AttendedEvent,
    Attention,
    EngineBusy,
    EngineError,
    EngineInfo,
    EngineLost,
    EngineRefused,
    Event,
    FinishEvent,
    GenerateRequest,
    Grammar,
    GrammarRefused,
    ProgressEvent,
    PromptTooLong,
    RequestExpired,
    Sampling,
    TokenEvent,
    TokenizerFiles,
)
from engines.gang.messages import pack_ids, unpack_ids


class MalformedWire(Exception):
    """Bytes that are no request, event or failure of ours."""


class WireRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    request_id: str
    prompt_ids: bytes
    max_new_tokens: int
    attention: Attention
    question_start: int
    document_starts: tuple[int, ...]
    sampling: Sampling
    stop_ids: tuple[int, ...]
    seconds_left: float | None
    service_tier: str
    n: int
    grammar: Grammar | None = None
    cache_key: str = ""


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """An EngineError without its class: `fields` are its keyword arguments."""

    code: str
    message: str
    fields: dict[str, int | float | str] = {}


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    error: Failure


EVENTS: Mapping[str, type[Event]] = {
    "progress": ProgressEvent,
    "attended": AttendedEvent,
    "token": TokenEvent,
    "answer_end": AnswerEndEvent,
    "finish": FinishEvent,
}
NAMES: Mapping[type[Event], str] = {kind: name for name, kind in EVENTS.items()}

PLAIN: Mapping[str, type[EngineError]] = {
    "engine_lost": EngineLost,
    "request_expired": RequestExpired,
    "engine_refused": EngineRefused,
    "grammar_refused": GrammarRefused,
}
PLAIN_CODES: Mapping[type[EngineError], str] = {kind: code for code, kind in PLAIN.items()}

_request_decoder = msgspec.msgpack.Decoder(WireRequest)
_event_decoders = {name: msgspec.json.Decoder(kind) for name, kind in EVENTS.items()}
_failure_decoder = msgspec.json.Decoder(Failure)
_refusal_decoder = msgspec.json.Decoder(Refusal)


def encode_request(request: GenerateRequest, now_s: float) -> bytes:
    left_s = None if math.isinf(request.deadline_s) else request.deadline_s - now_s
    return msgspec.msgpack.encode(
        WireRequest(
            request_id=request.request_id,
            prompt_ids=pack_ids(request.prompt_ids),
            max_new_tokens=request.max_new_tokens,
            attention=request.attention,
            question_start=request.question_start,
            document_starts=request.document_starts,
            sampling=request.sampling,
            stop_ids=request.stop_ids,
            seconds_left=left_s,
            service_tier=request.service_tier,
            n=request.n,
            grammar=request.grammar,
            cache_key=request.cache_key,
        )
    )


def decode_request(body: bytes, now_s: float) -> GenerateRequest:
    """Raises MalformedWire with the reason."""
    try:
        wire = _request_decoder.decode(body)
        prompt_ids = unpack_ids(wire.prompt_ids)
    except (msgspec.DecodeError, ValueError) as error:
        raise MalformedWire(str(error)) from error
    return GenerateRequest(
        request_id=wire.request_id,
        prompt_ids=prompt_ids,
        max_new_tokens=wire.max_new_tokens,
        attention=wire.attention,
        question_start=wire.question_start,
        document_starts=wire.document_starts,
        sampling=wire.sampling,
        stop_ids=wire.stop_ids,
        deadline_s=math.inf if wire.seconds_left is None else now_s + wire.seconds_left,
        service_tier=wire.service_tier,
        n=wire.n,
        grammar=wire.grammar,
        cache_key=wire.cache_key,
    )


def encode_event(event: Event) -> bytes:
    """One server-sent event."""
    return _sse(NAMES[type(event)], msgspec.json.encode(event))


def encode_failure(error: EngineError) -> bytes:
    """The server-sent event that ends a stream which did not finish."""
    return _sse("failure", msgspec.json.encode(failure_of(error)))


def decode_event(name: str, data: bytes) -> Event:
    """Raises the EngineError that a failure stands for, MalformedWire for anything unknown."""
    try:
        if name == "failure":
            raise error_of(_failure_decoder.decode(data))
        decoder = _event_decoders.get(name)
        if decoder is None:
            raise MalformedWire(f"unknown event {name}")
        return decoder.decode(data)
    except msgspec.DecodeError as error:
        raise MalformedWire(str(error)) from error


def failure_of(error: EngineError) -> Failure:
    match error:
        case PromptTooLong():
            fields: dict[str, int | float | str] = {
                "num_tokens": error.num_tokens,
                "limit": error.limit,
                "attention": error.attention.value,
            }
            return Failure(code="prompt_too_long", message=str(error), fields=fields)
        case EngineBusy():
            fields = {"queued": error.queued, "retry_after_s": error.retry_after_s}
            return Failure(code="engine_busy", message=str(error), fields=fields)
    return Failure(code=PLAIN_CODES.get(type(error), "engine_lost"), message=str(error))


def error_of(failure: Failure) -> EngineError:
    """Raises MalformedWire for a failure that no engine of ours sends."""
    fields = failure.fields
    try:
        match failure.code:
            case "prompt_too_long":
                return PromptTooLong(
                    num_tokens=int(fields["num_tokens"]),
                    limit=int(fields["limit"]),
                    attention=Attention(str(fields["attention"])),
                )
            case "engine_busy":
                return EngineBusy(
                    queued=int(fields["queued"]), retry_after_s=float(fields["retry_after_s"])
                )
            case code:
                return PLAIN[code](failure.message)
    except (KeyError, ValueError) as error:
        raise MalformedWire(f"failure {failure.code} is not complete or not known") from error


def encode_refusal(error: EngineError) -> bytes:
    """The body of an answer that is no stream, since the request never began."""
    return msgspec.json.encode(Refusal(error=failure_of(error)))


def decode_refusal(body: bytes) -> EngineError:
    """Raises MalformedWire."""
    try:
        return error_of(_refusal_decoder.decode(body).error)
    except msgspec.DecodeError as error:
        raise MalformedWire(str(error)) from error


def encode_info(info: EngineInfo) -> bytes:
    return msgspec.json.encode(info)


def decode_info(body: bytes) -> EngineInfo:
    """Raises MalformedWire."""
    try:
        return msgspec.json.decode(body, type=EngineInfo)
    except msgspec.DecodeError as error:
        raise MalformedWire(str(error)) from error


def encode_tokenizer(files: TokenizerFiles) -> bytes:
    """msgpack: the tokenizer's JSON is megabytes that nobody needs to escape."""
    return msgspec.msgpack.encode(files)


def decode_tokenizer(body: bytes) -> TokenizerFiles:
    """Raises MalformedWire."""
    try:
        return msgspec.msgpack.decode(body, type=TokenizerFiles)
    except msgspec.DecodeError as error:
        raise MalformedWire(str(error)) from error


def _sse(name: str, data: bytes) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"
