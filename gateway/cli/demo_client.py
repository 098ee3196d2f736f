"""The demo's side of the wire: uploads, waits and asks over HTTP; knows no tables or key."""

import io
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import httpx
import msgspec

from gateway.cli.sse_reader import SseComment, read_sse

T = TypeVar("T")

PREFILL = re.compile(r"prefill (\d+) ?% of (\d+) tokens")
POLL_S = 0.25
SILENCE_S = 180.0
"""The gateway sends comments while it works, so a longer silence means that it is gone."""


class DemoError(Exception):
    """A sentence for the user: the gateway did not do what the demo needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Citation:
    file_id: str | None = None
    filename: str | None = None
    start: int = 0
    stop: int = 0
    quote: str = ""
    score: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteFacts:
    """The `ringway` object of an answer; the fields that the table shows."""

    route: str
    reason: str = ""
    prompt_tokens: int = 0
    tokens_read: int | None = None
    coverage: float | None = None
    fallback_from: str | None = None
    citations: tuple[Citation, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    text: str
    facts: RouteFacts
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The gateway would not, or could not, answer. The numbers are set when length was why."""

    message: str
    code: str | None = None
    num_tokens: int | None = None
    limit: int | None = None


class ModelObject(msgspec.Struct):
    id: str


class ModelList(msgspec.Struct):
    data: list[ModelObject]


class FileObject(msgspec.Struct):
    id: str
    status: str
    status_details: str | None = None


class Delta(msgspec.Struct):
    content: str | None = None


class Choice(msgspec.Struct):
    delta: Delta


class ErrorObject(msgspec.Struct):
    message: str
    code: str | None = None


class LengthFacts(msgspec.Struct):
    num_tokens: int
    limit: int


class ErrorBody(msgspec.Struct):
    error: ErrorObject
    ringway: LengthFacts | None = None


class Chunk(msgspec.Struct):
    choices: list[Choice] = []
    ringway: RouteFacts | None = None
    error: ErrorObject | None = None


class ProgressReader(io.BytesIO):
    """Bytes that tell how many of them have been read."""

    def __init__(self, body: bytes, on_read: Callable[[int], None]) -> None:
        super().__init__(body)
        self._on_read = on_read

    def read(self, size: int | None = -1) -> bytes:
        piece = super().read(size)
        self._on_read(len(piece))
        return piece


class DemoClient:
    """One gateway. Network trouble is raised as DemoError, with the address in it."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http

    @classmethod
    @contextmanager
    def connect(cls, base_url: str, api_key: str) -> "Iterator[DemoClient]":
        timeout = httpx.Timeout(SILENCE_S, connect=5.0)
        headers = {"authorization": f"Bearer {api_key}"}
        with httpx.Client(base_url=base_url, headers=headers, timeout=timeout) as http:
            try:
                yield cls(http)
            except httpx.HTTPError as error:
                raise DemoError(f"no answer from the gateway at {base_url}: {error}") from error
            except httpx.InvalidURL as error:
                raise DemoError(f"{base_url!r} is not an address: {error}") from error

    def first_model(self) -> str:
        models = decoded(self._http.get("models"), ModelList).data
        if not models:
            raise DemoError("the gateway serves no model")
        return models[0].id

    def upload(self, filename: str, body: bytes, on_read: Callable[[int], None]) -> str:
        """The id of the new file. `on_read` is told of the bytes sent since its last call."""
        file = (filename, ProgressReader(body, on_read), "text/plain")
        reply = self._http.post("files", files={"file": file}, data={"purpose": "user_data"})
        return decoded(reply, FileObject).id

    def wait_processed(
        self, file_id: str, *, deadline_s: float, on_status: Callable[[str], None]
    ) -> None:
        """Raises DemoError when the file fails or `deadline_s` seconds pass."""
        stop_at = time.monotonic() + deadline_s
        while True:
            file = decoded(self._http.get(f"files/{file_id}"), FileObject)
            on_status(file.status)
            if file.status == "processed":
                return
            if file.status == "error":
                raise DemoError(f"the file was not processed: {file.status_details}")
            if time.monotonic() > stop_at:
                raise DemoError(f"the file is still {file.status} after {deadline_s:.0f} s")
            time.sleep(POLL_S)

    def delete(self, file_id: str) -> None:
        self._http.delete(f"files/{file_id}")

    def ask(
        self, body: dict[str, object], on_prefill: Callable[[int, int], None]
    ) -> Answer | Refused:
        """Stream one chat completion; `on_prefill` gets percent and tokens while it is read."""
        start = time.monotonic()
        text: list[str] = []
        facts: RouteFacts | None = None
        with self._http.stream("POST", "chat/completions", json=body | {"stream": True}) as reply:
            if reply.status_code != 200:
                return refusal(reply.read(), reply.status_code)
            for event in read_sse(reply.iter_bytes()):
                if isinstance(event, SseComment):
                    if match := PREFILL.search(event.text):
                        on_prefill(int(match[1]), int(match[2]))
                    continue
                if event.text == "[DONE]":
                    break
                chunk = parsed(event.text, Chunk)
                if chunk.error is not None:
                    return Refused(message=chunk.error.message, code=chunk.error.code)
                text += (choice.delta.content or "" for choice in chunk.choices)
                facts = chunk.ringway or facts
            else:
                return Refused(message="the stream ended before the answer did")
        if facts is None:
            raise DemoError("the answer has no `ringway` object: is this a Ringway gateway?")
        return Answer(text="".join(text), facts=facts, seconds=time.monotonic() - start)


def decoded(reply: httpx.Response, kind: type[T]) -> T:
    """The body of a good reply. Raises DemoError for any other."""
    if reply.is_error:
        told = refusal(reply.content, reply.status_code)
        raise DemoError(f"{reply.request.method} {reply.request.url}: {told.message}")
    return parsed(reply.text, kind)


def parsed(text: str, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.DecodeError as error:
        raise DemoError(f"the gateway's reply is not understood: {error}") from error


def refusal(body: bytes, status: int) -> Refused:
    """OpenAI's error object, with the numbers that Ringway puts beside it."""
    try:
        told = msgspec.json.decode(body, type=ErrorBody)
    except msgspec.DecodeError:
        return Refused(message=f"HTTP {status}")
    facts = told.ringway
    return Refused(
        message=told.error.message,
        code=told.error.code,
        num_tokens=facts.num_tokens if facts else None,
        limit=facts.limit if facts else None,
    )
