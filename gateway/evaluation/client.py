"""One OpenAI-compatible server: counts prompts and asks them; knows HTTP and no scores."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import httpx
import msgspec

from gateway.evaluation.plan import Arm, EvaluationError
from gateway.evaluation.wire import (
    Chunk,
    Completion,
    Counted,
    ErrorBody,
    ErrorObject,
    ModelList,
    RingwayObject,
    UsageObject,
)

T = TypeVar("T")

CONNECT_S = 10.0
ATTEMPTS = 5
MOST_WAIT_S = 60.0
BUSY = {429, 500, 502, 503, 504}
HOPELESS = {401, 404, 405}
UNCOUNTED = {404, 405, 501}
"""What a server without /v1/tokenize answers."""
NO_MODEL = "model_not_found"
TOO_LONG = {400, 413, 422}


@dataclass(slots=True)
class Reply:
    """An answer as it came in; `broken` when the stream said so itself."""

    text: str = ""
    first_token_s: float | None = None
    total_s: float = 0.0
    usage: UsageObject | None = None
    ringway: RingwayObject | None = None
    broken: ErrorObject | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    code: str | None
    message: str
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    message: str


@dataclass(slots=True, kw_only=True)
class EvalClient:
    """`is_ringway` false: no field goes out that OpenAI's API has not."""

    http: httpx.AsyncClient
    model: str
    is_ringway: bool
    max_tokens: int
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    counts_itself: bool = field(default=True, init=False)
    """Whether the server has /v1/tokenize; else it is asked for an answer of one token."""

    @classmethod
    @asynccontextmanager
    async def connect(
        cls, base_url: str, api_key: str, *, model: str, arms: tuple[Arm, ...], max_tokens: int
    ) -> "AsyncIterator[EvalClient]":
        """Silence is no limit: a server without comments may read a long prompt for an hour."""
        headers = {"authorization": f"Bearer {api_key}"}
        timeout = httpx.Timeout(None, connect=CONNECT_S)
        try:
            async with httpx.AsyncClient(
                base_url=base_url, headers=headers, timeout=timeout
            ) as http:
                is_ringway = any(arm in RINGWAY_ARMS for arm in arms)
                yield cls(http=http, model=model, is_ringway=is_ringway, max_tokens=max_tokens)
        except httpx.InvalidURL as error:
            raise EvaluationError(f"{base_url!r} is not an address: {error}") from error

    async def probe(self) -> None:
        """Find out how the server counts. Raises EvaluationError when it is not there."""
        reply = await self._post("tokenize", self._chat("Hello."), attempts=1)
        knows_no_model = _error_of(reply).error.code == NO_MODEL if reply.is_error else False
        self.counts_itself = reply.status_code not in UNCOUNTED or knows_no_model
        if self.counts_itself:
            _decoded(reply, Counted)

    def gone(self, error: httpx.HTTPError) -> EvaluationError:
        return EvaluationError(f"no answer from {self.http.base_url}: {_told(error)}")

    async def count(self, content: str) -> int:
        """Tokens of this message in the model's template."""
        if self.counts_itself:
            reply = await self._post("tokenize", self._chat(content))
            return _decoded(reply, Counted).count
        reply = await self._post("chat/completions", self._chat(content) | {"max_tokens": 1})
        return _decoded(reply, Completion).usage.prompt_tokens

    async def ask(self, content: str, arm: Arm) -> Reply | Refused | Failed:
        """Raises EvaluationError when going on makes no sense."""
        body = self._body(content, arm)
        for attempt in range(1, ATTEMPTS + 1):
            told = await self._ask_once(body)
            if not isinstance(told, _Busy):
                break
            if attempt < ATTEMPTS:
                await self.sleep(told.wait_s or min(MOST_WAIT_S, 2.0**attempt))
        if isinstance(told, _Busy):
            if told.is_gone:
                raise EvaluationError(f"no answer from {self.http.base_url}: {told.message}")
            return Failed(told.message)
        if isinstance(told, Reply) and "fidelity" in body:
            _refuse_ignorant(told)
        return told

    async def _ask_once(self, body: dict[str, object]) -> "Reply | Refused | Failed | _Busy":
        began_s = time.perf_counter()
        try:
            async with self.http.stream("POST", "chat/completions", json=body) as reply:
                if reply.status_code == 200:
                    return await _read(reply, began_s)
                await reply.aread()
                return _turned_down(reply)
        except httpx.TransportError as error:
            return _Busy(_told(error), None, is_gone=True)

    async def _post(
        self, path: str, body: dict[str, object], attempts: int = ATTEMPTS
    ) -> httpx.Response:
        """The last of several attempts while the server is busy."""
        for attempt in range(1, attempts + 1):
            try:
                reply = await self.http.post(path, json=body)
            except httpx.TransportError as error:
                if attempt == attempts:
                    raise self.gone(error) from error
                await self.sleep(min(MOST_WAIT_S, 2.0**attempt))
                continue
            if reply.status_code not in BUSY or attempt == attempts:
                break
            await self.sleep(_retry_after(reply) or min(MOST_WAIT_S, 2.0**attempt))
        return reply

    def _chat(self, content: str) -> dict[str, object]:
        return {"model": self.model, "messages": [{"role": "user", "content": content}]}

    def _body(self, content: str, arm: Arm) -> dict[str, object]:
        body = self._chat(content) | {
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": 0,
            "max_tokens": self.max_tokens,
        }
        if arm in RINGWAY_ARMS:
            return body | {"fidelity": arm.value, "allow_fallback": arm is Arm.AUTO}
        if arm is Arm.TRUNCATE and self.is_ringway:
            return body | {"fidelity": Arm.FULL.value, "allow_fallback": False}
        return body


RINGWAY_ARMS = (Arm.FULL, Arm.HIERARCHICAL, Arm.RETRIEVAL, Arm.AUTO)


@dataclass(frozen=True, slots=True)
class _Busy:
    message: str
    wait_s: float | None
    is_gone: bool = False


async def _read(reply: httpx.Response, began_s: float) -> Reply | Failed:
    told = Reply()
    text: list[str] = []
    is_done = False
    async for data in _data_lines(reply):
        if data == b"[DONE]":
            is_done = True
            break
        try:
            chunk = msgspec.json.decode(data, type=Chunk)
        except msgspec.DecodeError as error:
            raise EvaluationError(f"the server's stream is not understood: {error}") from error
        pieces = [choice.delta.content or "" for choice in chunk.choices]
        if any(pieces) and told.first_token_s is None:
            told.first_token_s = time.perf_counter() - began_s
        text += pieces
        told.usage = chunk.usage or told.usage
        told.ringway = chunk.ringway or told.ringway
        told.broken = chunk.error or told.broken
    told.text, told.total_s = "".join(text), time.perf_counter() - began_s
    if told.broken is None and not is_done:
        return Failed("the stream ended before the answer did")
    return told


def _told(error: Exception) -> str:
    return str(error) or type(error).__name__


def _refuse_ignorant(told: Reply) -> None:
    if told.ringway is None and told.broken is None:
        raise EvaluationError(
            "the answer has no `ringway` object, so this server ignores `fidelity`; "
            "ask it with --routes plain"
        )


async def _data_lines(reply: httpx.Response) -> AsyncIterator[bytes]:
    """Only CR and LF end a line: U+2028 inside JSON does not, as it would for httpx."""
    rest = b""
    async for piece in reply.aiter_bytes():
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                yield line[5:].strip()
    if rest.startswith(b"data:"):
        yield rest[5:].strip()


def _turned_down(reply: httpx.Response) -> "Refused | _Busy":
    """Raises EvaluationError for what every other prompt would get, too."""
    told = _error_of(reply)
    if reply.status_code in HOPELESS:
        raise EvaluationError(f"HTTP {reply.status_code}: {told.error.message}")
    if reply.status_code in BUSY:
        return _Busy(f"HTTP {reply.status_code}: {told.error.message}", _retry_after(reply))
    code = None if told.error.code is None else str(told.error.code)
    return Refused(code, told.error.message, told.ringway.limit if told.ringway else None)


def _error_of(reply: httpx.Response) -> ErrorBody:
    try:
        return msgspec.json.decode(reply.content, type=ErrorBody)
    except msgspec.DecodeError:
        return ErrorBody(error=ErrorObject(message=f"HTTP {reply.status_code}"))


def _retry_after(reply: httpx.Response) -> float | None:
    said = reply.headers.get("retry-after", "")
    return min(MOST_WAIT_S, float(said)) if said.isdigit() else None


def _decoded(reply: httpx.Response, kind: type[T]) -> T:
    if reply.is_error:
        told = f"HTTP {reply.status_code} from {reply.url.path}: {_error_of(reply).error.message}"
        raise CountRefused(told) if reply.status_code in TOO_LONG else EvaluationError(told)
    try:
        return msgspec.json.decode(reply.content, type=kind)
    except msgspec.DecodeError as error:
        raise EvaluationError(f"{reply.url.path} is not understood: {error}") from error


async def first_model(base_url: str, api_key: str) -> str:
    """The name that /v1/models lists first. Raises EvaluationError."""
    async with EvalClient.connect(base_url, api_key, model="", arms=(), max_tokens=1) as client:
        try:
            reply = await client.http.get("models")
        except httpx.HTTPError as error:
            raise client.gone(error) from error
    models = _decoded(reply, ModelList).data
    if not models:
        raise EvaluationError(f"{base_url} lists no models; name one with --model")
    return models[0].id


class CountRefused(Exception):
    """The server would not count a prompt: it is too long even for that."""
