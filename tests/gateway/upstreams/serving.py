"""Engines over mock upstreams, built as the gateway builds them, and requests for them."""

from array import array
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace

from engines.api import Engine, Event, GenerateRequest, Sampling, TextEvent
from gateway.upstreams.config import Upstreams, UpstreamsConfig
from gateway.upstreams.wiring import open_upstreams

MODEL = "m"


@asynccontextmanager
async def engine_over(*urls: str, kind: str = "openai", **model: object) -> AsyncIterator[Engine]:
    replicas = [{"url": url, "kind": kind} for url in urls]
    config = UpstreamsConfig.model_validate(
        {"models": {MODEL: {"replicas": replicas, "context_tokens": 8192, **model}}}
    )
    async with open_upstreams(Upstreams(config, {})) as engines:
        yield engines[MODEL]


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
