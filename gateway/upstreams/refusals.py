"""What other servers' error bodies mean to us: the one place that reads their words.

A machine-readable code or type decides where there is one. Servers that give none for an over-long
prompt are known by whole sentences of theirs, read only from the message of a refusal (400, 413,
422, or an error inside a stream), so that no number in an echoed prompt can pose as one.
"""

import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

import msgspec

from engines.api import (
    Attention,
    EngineBusy,
    EngineError,
    EngineLost,
    EngineRefused,
    PromptTooLong,
)

OVERFLOW_CODES = frozenset(
    {"context_length_exceeded", "exceed_context_size_error", "string_above_max_length"}
)
REFUSALS = (400, 413, 422)
RETRYABLE = (429, 502, 503)
DEFAULT_RETRY_S = 1.0
MAX_MESSAGE_CHARS = 500

_N = r"(?P<num>\d+)"
_L = r"(?P<limit>\d+)"
OVERFLOWS = tuple(
    re.compile(pattern)
    for pattern in (
        # vLLM, and OpenAI before it: one limit, and what was asked in one of many words.
        rf"This model's maximum context length is {_L} tokens(?:\. However,|, however) "
        r"(?:you requested \d+ output tokens and your prompt contains (?:at least )?(?P<num2>\d+)"
        rf"|you requested {_N}|your messages resulted in (?P<num3>\d+)"
        r"|your (?:prompt contains|request has) (?:at least )?(?P<num4>\d+))",
        rf"You passed (?:{_N} input tokens|\d+ input characters) and requested \d+ output tokens\. "
        rf"However, the model's context length is only {_L} tokens",
        rf"The (?:decoder )?prompt \((?:total )?length {_N}\) "
        r"(?:plus the number of requested output tokens \(at least 1\) )?"
        rf"(?:is longer than|exceeds) the maximum model length of {_L}",
        # SGLang.
        rf"The input \({_N} tokens\) is longer than the model's context length \({_L} tokens\)",
        r"Requested token count exceeds the model's maximum context length of "
        rf"{_L} tokens\. You requested a total of {_N} tokens",
        rf"Input length \({_N} tokens\) exceeds the maximum allowed length \({_L} tokens\)",
        # llama.cpp.
        rf"(?:the )?request (?:\({_N} tokens\) )?exceeds the available context size "
        rf"\({_L} tokens\)",
        # Azure and newer OpenAI.
        rf"Input tokens exceed the configured limit of {_L} tokens\. Your messages resulted in "
        rf"{_N} tokens",
        r"Your input exceeds the context window of this model",
        # Anthropic.
        rf"prompt is too long: {_N} tokens > {_L} maximum",
        rf"input length and `max_tokens` exceed context limit: {_N} \+ \d+ > {_L}",
    )
)
"""Matched from the beginning of the message, after the wrappers that servers put around it."""

WRAPPER = re.compile(r"^(?:[\w.]*(?:Error|Exception)\s*:\s*|litellm\.\w+:\s*|openai error:\s*)+")


class Unreached(EngineLost):
    """Nothing of the request was worked on: another server may be asked."""


class Overloaded(EngineBusy):
    """The server asked to be left alone for a while."""

    def __init__(self, *, retry_after_s: float) -> None:
        super().__init__(queued=0, retry_after_s=retry_after_s)


class _ErrorObject(msgspec.Struct):
    message: str | None = None
    type: str | None = None
    code: str | int | None = None
    n_prompt_tokens: int | None = None
    n_ctx: int | None = None


class _ErrorBody(msgspec.Struct):
    """OpenAI's shape, the same without the wrapping object, FastAPI's, and a bare string."""

    error: _ErrorObject | str | None = None
    message: str | None = None
    type: str | None = None
    code: str | int | None = None
    detail: str | None = None

    def object(self) -> _ErrorObject:
        if isinstance(self.error, _ErrorObject):
            return self.error
        message = self.error or self.message or self.detail
        return _ErrorObject(message=message, type=self.type, code=self.code)


def refusal(
    status: int, headers: Mapping[str, str], body: bytes, *, num_tokens: int, now_unix_s: float
) -> EngineError:
    """What a response that is no success means. `num_tokens` is our own count of the prompt."""
    told = _told(body)
    if status in REFUSALS:
        return overflow(told, num_tokens) or EngineRefused(_words(told, body))
    if status in (401, 403):
        return Unreached(f"the upstream refuses the gateway's own credentials ({status})")
    if status == 404:
        return Unreached("the upstream does not know the model or path it is configured with")
    if status in (429, 503):
        return Overloaded(retry_after_s=_retry_after_s(headers, now_unix_s))
    if status == 502:
        return Unreached(f"the upstream's own proxy could not reach it ({status})")
    return EngineLost(f"the upstream answered with status {status}: {_words(told, body)}")


def error_in_stream(data: bytes, *, num_tokens: int) -> EngineError | None:
    """What an error object instead of a chunk means; None when `data` is no error."""
    told = _told(data)
    if told.message is None and told.code is None:
        return None
    return overflow(told, num_tokens) or EngineLost(f"the upstream failed: {_words(told, data)}")


def overflow(told: _ErrorObject, num_tokens: int) -> PromptTooLong | None:
    message = WRAPPER.sub("", (told.message or "").strip())
    match = next((m for one in OVERFLOWS if (m := one.match(message))), None)
    if match is None and not {told.code, told.type} & OVERFLOW_CODES:
        return None
    numbers = match.groupdict() if match else {}
    counted = [int(v) for name, v in numbers.items() if name.startswith("num") and v]
    limit = numbers.get("limit")
    return PromptTooLong(
        num_tokens=counted[0] if counted else told.n_prompt_tokens or num_tokens,
        limit=int(limit) if limit else told.n_ctx or 0,
        attention=Attention.FULL,
    )


def _told(body: bytes) -> _ErrorObject:
    try:
        return msgspec.json.decode(body, type=_ErrorBody).object()
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _ErrorObject()


def _words(told: _ErrorObject, body: bytes) -> str:
    message = told.message or body[: 4 * MAX_MESSAGE_CHARS].decode(errors="replace").strip()
    message = message or "no reason given"
    return message if len(message) <= MAX_MESSAGE_CHARS else message[:MAX_MESSAGE_CHARS] + "…"


def _retry_after_s(headers: Mapping[str, str], now_unix_s: float) -> float:
    """Seconds, or a date; a header that is neither, or none, is a second."""
    text = headers.get("retry-after", "").strip()
    try:
        return max(0.0, float(text))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - now_unix_s)
    except ValueError:
        return DEFAULT_RETRY_S
