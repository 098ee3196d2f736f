"""A real two-rank gang of the default model, and what becomes of its streams when ranks fail."""

import asyncio
import os
import signal
import time
from array import array
from contextlib import aclosing
from dataclasses import replace

import pytest

from engines.api import (
    Attention,
    Engine,
    FinishEvent,
    GenerateRequest,
    ProgressEvent,
    Sampling,
    TokenEvent,
)
from engines.config import EngineConfig, HierarchicalConfig
from engines.models.catalog import default_model_dir
from engines.wiring import build_supervisor
from tests.engines.gang.scripted_gang import collect, rank_pids, running, tokens_of

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(300)]

PROMPT = array("i", [1, 9690, 198, 2683, 359, 253, 5356, 5646, 11173] * 12)
NUM_NEW = 8


def config(step_timeout_s: float = 60.0) -> EngineConfig:
    pytest.importorskip("torch")
    return EngineConfig(
        model_dir=default_model_dir(),
        model_name="smollm2",
        prefill_chunk_tokens=64,
        kv_budget_bytes=1 << 30,
        step_timeout_s=step_timeout_s,
        hierarchical=HierarchicalConfig(chunk_tokens=64, anchor_tokens=16, top_k=2),
    )


def ask(attention: Attention, sampling: Sampling) -> GenerateRequest:
    return GenerateRequest(
        request_id="r",
        prompt_ids=PROMPT,
        max_new_tokens=NUM_NEW,
        attention=attention,
        question_start=len(PROMPT) - 20,
        sampling=sampling,
    )


async def disturbed(engine: Engine, request: GenerateRequest, number: signal.Signals) -> list[int]:
    """The tokens of a stream during which a rank gets a signal, after its fourth token."""
    events = []
    async with aclosing(engine.generate(request)) as stream:
        async for event in stream:
            events.append(event)
            if isinstance(event, TokenEvent) and len(tokens_of(events)) == 4:
                os.kill(max(rank_pids(os.getpid())), number)
    assert isinstance(events[-1], FinishEvent)
    assert events[-1].completion_tokens == NUM_NEW
    return tokens_of(events)


async def test_a_killed_or_hung_rank_changes_no_token_of_a_stream() -> None:
    greedy, seeded = Sampling(temperature=0), Sampling(temperature=0.8, seed=7)
    async with running(build_supervisor(config(step_timeout_s=6))) as engine:
        for attention, sampling, number in (
            (Attention.FULL, greedy, signal.SIGKILL),
            (Attention.HIERARCHICAL, greedy, signal.SIGKILL),
            (Attention.FULL, seeded, signal.SIGSTOP),
        ):
            request = ask(attention, sampling)
            quiet = tokens_of(await collect(engine.generate(request)))
            epoch = (await engine.info()).epoch
            assert await disturbed(engine, request, number) == quiet
            assert (await engine.info()).epoch > epoch
    assert not rank_pids(os.getpid())


async def test_leaving_in_the_middle_of_a_step_frees_the_ranks_within_250_ms() -> None:
    prompt = PROMPT * 60
    async with running(build_supervisor(replace(config(), prefill_chunk_tokens=512))) as engine:
        await time_to_first_event(engine)
        alone_s = await time_to_first_event(engine)
        for attention in Attention:
            long = GenerateRequest(
                request_id="long",
                prompt_ids=prompt,
                max_new_tokens=1,
                attention=attention,
                question_start=len(prompt) - 20,
            )
            async with aclosing(engine.generate(long)) as events:
                assert isinstance(await anext(events), ProgressEvent)
                await asyncio.sleep(0.1)
            assert await time_to_first_event(engine) < 0.25 + 2 * alone_s, attention


async def time_to_first_event(engine: Engine) -> float:
    short = GenerateRequest(request_id="short", prompt_ids=PROMPT[:8], max_new_tokens=1)
    started_s = time.monotonic()
    async with aclosing(engine.generate(short)) as events:
        await anext(events)
    return time.monotonic() - started_s
