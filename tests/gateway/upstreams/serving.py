"""Engines and gateways over mock upstreams, built as the gateway builds them, and requests."""

import asyncio
import socket
from array import array
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace

import httpx
import uvicorn

from engines.api import Engine, Event, GenerateRequest, Sampling, TextEvent
from gateway.app import create_app
from gateway.cli.hosting import Server
from gateway.parts import Parts
from gateway.policy import Policy
from gateway.upstreams.config import Upstreams, UpstreamsConfig
from gateway.upstreams.wiring import open_upstreams
from ingest.fake import FakeLibrary

MODEL = "m"


@asynccontextmanager
async def engine_over(*urls: str, kind: str = "openai", **model: object) -> AsyncIterator[Engine]:
    replicas = [{"url": url, "kind": kind} for url in urls]
    config = UpstreamsConfig.model_validate(
        {"models": {MODEL: {"replicas": replicas, "context_tokens": 8192, **model}}}
    )
    async with open_upstreams(Upstreams(config, {})) as engines:
        yield engines[MODEL]


@asynccontextmanager
async def gateway_of(models: Mapping[str, object]) -> AsyncIterator[httpx.AsyncClient]:
    """A real uvicorn on a real socket in this loop, over models as an upstreams file has them,
    and a client of it."""
    config = UpstreamsConfig.model_validate({"models": models})
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.bind(("127.0.0.1", 0))
    sock.listen()
    base_url = f"http://127.0.0.1:{sock.getsockname()[1]}"
    async with open_upstreams(Upstreams(config, {})) as engines:
        parts = Parts(
            engine=next(iter(engines.values())),
            models=engines,
            policy=Policy(),
            library=FakeLibrary(),
        )
        app = create_app(parts)
        server = Server(
            uvicorn.Config(app, http="httptools", ws="none", lifespan="off", log_config=None)
        )
        serving = asyncio.create_task(server.serve(sockets=[sock]))
        try:
            async with httpx.AsyncClient(base_url=base_url, trust_env=False, timeout=10) as client:
                yield client
        finally:
            server.should_exit = True
            await serving
            sock.close()


def request(num_tokens: int = 20, **changes: object) -> GenerateRequest:
    asked = GenerateRequest(
        request_id="r1",
        prompt_ids=array("i", [i % 250 for i in range(num_tokens)]),
        max_new_tokens=16,
        sampling=Sampling(temperature=0, seed=5),
        cache_key="ann/s1",
        chat={"messages": [{"role": "user", "content": "Hi"}]},
    )
    return replace(asked, **changes)  # type: ignore[arg-type]


async def heard(engine: Engine, asked: GenerateRequest | None = None) -> list[Event]:
    async with aclosing(engine.generate(asked or request())) as events:
        return [event async for event in events]


def text_of(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextEvent))
