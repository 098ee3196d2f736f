"""An Engine at the other end of HTTP; knows the wire and httpx, imports no engine code."""

import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager
from types import TracebackType
from typing import cast

import httpx

from engines.api import (
    EngineError,
    EngineInfo,
    EngineLost,
    EngineRefused,
    Event,
    FinishEvent,
    GenerateRequest,
    TokenizerFiles,
)
from engines.face.wire import (
    MalformedWire,
    decode_event,
    decode_info,
    decode_refusal,
    decode_tokenizer,
    encode_request,
)

ASK_TIMEOUT = httpx.Timeout(10.0, connect=5.0)
STREAM_TIMEOUT = httpx.Timeout(None, connect=5.0)
"""A prefill may be silent for long; whether the host is alive shows when it accepts."""


class RemoteEngine:
    """An engine's HTTP face as an Engine.

    Takes a client that its owner closes, or opens one of its own in `async with`.
    """

    def __init__(
        self,
        base_url: str,
        client: httpx.AsyncClient | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._base_url = base_url.rstrip("/")
        self._client = client
        self._clock = clock
        self._owned = AsyncExitStack()

    async def __aenter__(self) -> "RemoteEngine":
        if self._client is None:
            limits = httpx.Limits(max_connections=None, max_keepalive_connections=8)
            client = httpx.AsyncClient(limits=limits, trust_env=False)
            self._client = await self._owned.enter_async_context(client)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._owned.aclose()

    async def info(self) -> EngineInfo:
        body = await self._get("/v1/engine")
        with _our_wire():
            return decode_info(body)

    async def tokenizer(self) -> TokenizerFiles:
        body = await self._get("/v1/tokenizer")
        with _our_wire():
            return decode_tokenizer(body)

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Event, None]:
        """Closing it closes the connection, which is how the engine learns of the abort."""
        body = encode_request(request, self._clock())
        is_finished = False
        traced = {"traceparent": request.traceparent} if request.traceparent else {}
        async with self._streaming(body, traced) as response, aclosing(_events(response)) as events:
            async for event in events:
                yield event
                is_finished = isinstance(event, FinishEvent)
        if not is_finished:
            raise EngineLost("the engine ended the stream before its finish")

    @asynccontextmanager
    async def _streaming(
        self, body: bytes, headers: Mapping[str, str]
    ) -> AsyncIterator[httpx.Response]:
        url = f"{self._base_url}/v1/generate"
        try:
            with _our_wire():
                async with self._connected.stream(
                    "POST", url, content=body, headers=headers, timeout=STREAM_TIMEOUT
                ) as response:
                    if response.status_code != httpx.codes.OK:
                        raise _refusal(response.status_code, await response.aread())
                    yield response
        except httpx.HTTPError as error:
            raise EngineLost(f"the connection to the engine failed: {error!r}") from error

    async def _get(self, path: str) -> bytes:
        try:
            response = await self._connected.get(self._base_url + path, timeout=ASK_TIMEOUT)
        except httpx.HTTPError as error:
            raise EngineLost(f"the engine cannot be reached: {error!r}") from error
        if response.status_code != httpx.codes.OK:
            raise EngineLost(f"the engine answered {path} with status {response.status_code}")
        return response.content

    @property
    def _connected(self) -> httpx.AsyncClient:
        assert self._client is not None, "enter the engine, or give it a client"
        return self._client


@contextmanager
def _our_wire() -> Iterator[None]:
    try:
        yield
    except MalformedWire as error:
        raise EngineLost(f"the engine spoke another wire: {error}") from error


def _refusal(status: int, body: bytes) -> EngineError:
    """What the engine said, or what a proxy's status means."""
    try:
        return decode_refusal(body)
    except MalformedWire:
        if status == httpx.codes.BAD_REQUEST:
            return EngineRefused(body.decode(errors="replace"))
        return EngineLost(f"the engine answered {status}")


async def _events(response: httpx.Response) -> AsyncGenerator[Event, None]:
    name = ""
    async with aclosing(cast(AsyncGenerator[str, None], response.aiter_lines())) as lines:
        async for line in lines:
            field, _, value = line.partition(": ")
            if field == "event":
                name = value
            elif field == "data":
                yield decode_event(name, value.encode())
