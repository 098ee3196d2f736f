"""Builds the engines that an upstreams file names; the only place here that chooses classes."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import TypeVar

from engines.api import Engine, EngineInfo, EngineLost, ModelMissing, TokenizerFiles
from engines.face.client import RemoteEngine
from gateway.upstreams.about import (
    Declared,
    declared_info,
    encoding_tokenizer,
    estimated_tokenizer,
    folder_tokenizer,
)
from gateway.upstreams.config import Kind, ModelConfig, ReplicaConfig, Upstreams
from gateway.upstreams.dialect import Dialect
from gateway.upstreams.dialects.chat import ChatDialect
from gateway.upstreams.dialects.llamacpp import LlamaCppDialect
from gateway.upstreams.dialects.sglang import SglangDialect
from gateway.upstreams.dialects.vllm import VllmDialect
from gateway.upstreams.fleet import About, Fleet
from gateway.upstreams.http import Pool
from gateway.upstreams.replica import Replica
from gateway.upstreams.server import GangServer, HttpServer, Server

T = TypeVar("T")


@asynccontextmanager
async def open_upstreams(upstreams: Upstreams) -> AsyncIterator[Mapping[str, Engine]]:
    """Engines by model, in the file's order. No server needs to answer yet.

    Raises ValueError when a tokenizer cannot be read.
    """
    async with AsyncExitStack() as stack:
        yield {
            name: await _open_model(name, model, upstreams, stack)
            for name, model in upstreams.config.models.items()
        }


async def _open_model(
    name: str, model: ModelConfig, upstreams: Upstreams, stack: AsyncExitStack
) -> Fleet:
    if model.kind is Kind.RINGWAY:
        gangs = [await stack.enter_async_context(RemoteEngine(one.url)) for one in model.replicas]
        servers: list[Server] = [GangServer(gang) for gang in gangs]
        return _fleet(model, servers, _Gangs(name, gangs))
    try:
        tokenizer = await asyncio.to_thread(_tokenizer, model, upstreams.config.encodings)
    except (ModelMissing, ValueError) as error:
        raise ValueError(f"the tokenizer of {name} cannot be used: {error}") from error
    dialect = dialect_of(model)
    servers = [
        HttpServer(
            model=one.model or name,
            dialect=dialect,
            pool=await stack.enter_async_context(aclosing(_pool(one, upstreams))),
        )
        for one in model.replicas
    ]
    info = declared_info(name, model, tokenizer, dialect)
    return _fleet(model, servers, Declared(info, tokenizer))


def dialect_of(model: ModelConfig) -> Dialect:
    """Token ids need the model's own tokenizer and template here; without, and for images,
    messages are sent."""
    if model.tokenizer is not None and not model.images:
        match model.kind:
            case Kind.VLLM:
                return VllmDialect()
            case Kind.SGLANG:
                return SglangDialect()
            case Kind.LLAMACPP:
                return LlamaCppDialect()
    return ChatDialect(model.kind)


class _Gangs:
    """What the first gang that can be reached tells, under the name that is configured."""

    def __init__(self, name: str, gangs: list[RemoteEngine]) -> None:
        self._name = name
        self._gangs = gangs

    async def info(self) -> EngineInfo:
        """Raises EngineLost when none can be reached."""
        return replace(await self._first(lambda gang: gang.info()), model=self._name)

    async def tokenizer(self) -> TokenizerFiles:
        """Raises EngineLost when none can be reached."""
        return await self._first(lambda gang: gang.tokenizer())

    async def _first(self, ask: Callable[[RemoteEngine], Awaitable[T]]) -> T:
        for gang in self._gangs[:-1]:
            with suppress(EngineLost):
                return await ask(gang)
        return await ask(self._gangs[-1])


def _fleet(model: ModelConfig, servers: list[Server], about: About) -> Fleet:
    replicas = [
        Replica(name=one.url, server=server, clock=monotonic)
        for one, server in zip(model.replicas, servers, strict=True)
    ]
    return Fleet(replicas, about)


def _pool(replica: ReplicaConfig, upstreams: Upstreams) -> Pool:
    headers = {"accept": "text/event-stream", "content-type": "application/json"}
    if replica.api_key_env is not None:
        key = upstreams.keys[replica.api_key_env].get_secret_value()
        headers["authorization"] = f"Bearer {key}"
    return Pool(replica.url.rstrip("/").removesuffix("/v1"), headers)


def _tokenizer(model: ModelConfig, encodings: Path | None) -> TokenizerFiles:
    """Raises ModelMissing or ValueError."""
    if model.tokenizer is not None:
        return folder_tokenizer(model.tokenizer)
    if model.encoding is not None:
        assert encodings is not None, "checked with the file"
        return encoding_tokenizer(model.encoding, encodings)
    return estimated_tokenizer()
