"""What every Engine promises, held against the fake, the fake behind HTTP, and a real gang."""

import asyncio
import time
from array import array
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import replace

import pytest

from engines.api import (
    AnswerEndEvent,
    AttendedEvent,
    Attention,
    Engine,
    EngineRefused,
    Event,
    FinishEvent,
    FinishReason,
    GenerateRequest,
    ProgressEvent,
    PromptTooLong,
    RequestExpired,
    Sampling,
    TokenEvent,
)
from engines.config import EngineConfig, HierarchicalConfig
from engines.fake import FakeEngine, FakeSettings, say
from engines.models.catalog import default_model_dir
from engines.wiring import build_supervisor
from gateway.upstreams.fleet import Fleet
from gateway.upstreams.replica import Replica
from gateway.upstreams.server import GangServer
from tests.engines.face.served import remote
from tests.engines.gang.scripted_gang import running

EngineMaker = Callable[[], AbstractAsyncContextManager[Engine]]


def fake_engine() -> FakeEngine:
    settings = FakeSettings(prefill_chunk_tokens=64, prefill_delay_s=0.02, token_delay_s=0.01)
    return FakeEngine(say("It is what it is. " * 40), settings)


@asynccontextmanager
async def fake() -> AsyncIterator[Engine]:
    yield fake_engine()


@asynccontextmanager
async def fake_behind_http() -> AsyncIterator[Engine]:
    async with remote(fake_engine()) as engine:
        yield engine


@asynccontextmanager
async def fleet_of_gangs() -> AsyncIterator[Engine]:
    async with remote(fake_engine()) as one, remote(fake_engine()) as other:
        gangs = {"one": one, "other": other}
        replicas = [
            Replica(name=name, server=GangServer(gang), clock=time.monotonic)
            for name, gang in gangs.items()
        ]
        yield Fleet(replicas, one)


@asynccontextmanager
async def real_gang_behind_http() -> AsyncIterator[Engine]:
    pytest.importorskip("torch")
    config = EngineConfig(
        model_dir=default_model_dir(),
        model_name="smollm2",
        prefill_chunk_tokens=64,
        kv_budget_bytes=1 << 30,
        hierarchical=HierarchicalConfig(chunk_tokens=64, anchor_tokens=16, top_k=2),
    )
    async with running(build_supervisor(config)) as supervisor, remote(supervisor) as engine:
        yield engine


@pytest.fixture(
    params=[
        fake,
        fake_behind_http,
        fleet_of_gangs,
        pytest.param(real_gang_behind_http, marks=[pytest.mark.ranks, pytest.mark.timeout(120)]),
    ]
)
def make_engine(request: pytest.FixtureRequest) -> EngineMaker:
    maker: EngineMaker = request.param
    return maker


def prompt(num_tokens: int, **changes: object) -> GenerateRequest:
    """Ids below 256 mean something to every model here."""
    request = GenerateRequest(
        request_id="contract",
        prompt_ids=array("i", [40 + i % 50 for i in range(num_tokens)]),
        max_new_tokens=6,
        sampling=Sampling(temperature=0),
    )
    return replace(request, **changes)  # type: ignore[arg-type]


async def collect(engine: Engine, request: GenerateRequest) -> list[Event]:
    async with aclosing(engine.generate(request)) as events:
        return [event async for event in events]


async def is_idle(engine: Engine) -> bool:
    load = (await engine.info()).load
    return load.running + load.queued == 0


async def test_an_engine_keeps_its_word(make_engine: EngineMaker) -> None:
    """One engine for all clauses: a real gang takes seconds to start."""
    async with make_engine() as engine:
        for clause in CLAUSES:
            await clause(engine)


async def full_attention_reads_then_speaks_then_finishes(engine: Engine) -> None:
    events = await collect(engine, prompt(200))
    kinds = [type(event) for event in events]
    num_progress = kinds.count(ProgressEvent)
    assert num_progress >= 2
    assert kinds == [*[ProgressEvent] * num_progress, *[TokenEvent] * 6, FinishEvent]
    finish = events[-1]
    assert isinstance(finish, FinishEvent)
    assert finish.reason is FinishReason.LENGTH
    assert (finish.prompt_tokens, finish.completion_tokens) == (200, 6)
    assert min(finish.queue_s, finish.prefill_s, finish.decode_s) >= 0


async def progress_grows_to_the_whole_prompt(engine: Engine) -> None:
    events = await collect(engine, prompt(200))
    progress = [event for event in events if isinstance(event, ProgressEvent)]
    done = [event.done_tokens for event in progress]
    assert done == sorted(set(done))
    assert done[-1] == 200
    assert {event.total_tokens for event in progress} == {200}


async def hierarchical_attention_says_once_what_it_attended(engine: Engine) -> None:
    request = prompt(300, attention=Attention.HIERARCHICAL, question_start=280)
    events = await collect(engine, request)
    kinds = [type(event) for event in events]
    assert kinds.count(AttendedEvent) == 1
    assert kinds.index(AttendedEvent) == kinds.index(TokenEvent) - 1
    attended = events[kinds.index(AttendedEvent)]
    assert isinstance(attended, AttendedEvent)
    assert 0 < attended.recall <= 1
    masses = [span.mass for span in attended.spans]
    assert masses == sorted(masses, reverse=True)
    assert all(0 <= span.start < span.stop <= 280 for span in attended.spans)


async def a_stop_id_ends_the_answer_unsent(engine: Engine) -> None:
    tokens = [e.id for e in await collect(engine, prompt(50)) if isinstance(e, TokenEvent)]
    stop = tokens[2]
    events = await collect(engine, prompt(50, stop_ids=(stop,)))
    sent = [event.id for event in events if isinstance(event, TokenEvent)]
    assert sent == tokens[: tokens.index(stop)]
    finish = events[-1]
    assert isinstance(finish, FinishEvent)
    assert finish.reason is FinishReason.STOP
    assert finish.completion_tokens == len(sent)


async def logprobs_come_when_asked_for(engine: Engine) -> None:
    sampling = Sampling(temperature=0, top_logprobs=3)
    events = await collect(engine, prompt(50, sampling=sampling))
    for event in events:
        if isinstance(event, TokenEvent):
            assert event.logprob is not None
            assert event.logprob <= 0
            assert len(event.top_logprobs) == 3
            assert event.id in [entry.id for entry in event.top_logprobs]


async def greedy_answers_repeat(engine: Engine) -> None:
    first, second = [await collect(engine, prompt(70)) for _ in range(2)]
    assert [e for e in first if isinstance(e, TokenEvent)] == [
        e for e in second if isinstance(e, TokenEvent)
    ]


async def several_answers_are_those_of_as_many_seeds(engine: Engine) -> None:
    sampling = Sampling(temperature=1.0, seed=3)
    alone = [
        [
            event.id
            for event in await collect(engine, prompt(70, sampling=replace(sampling, seed=3 + i)))
            if isinstance(event, TokenEvent)
        ]
        for i in range(3)
    ]
    events = await collect(engine, prompt(70, sampling=sampling, n=3))
    tokens = [e for e in events if isinstance(e, TokenEvent)]
    assert [[t.id for t in tokens if t.index == i] for i in range(3)] == alone
    ends = [e for e in events if isinstance(e, AnswerEndEvent)]
    assert sorted((e.index, e.completion_tokens) for e in ends) == [
        (i, len(ids)) for i, ids in enumerate(alone)
    ]
    finish = events[-1]
    assert isinstance(finish, FinishEvent)
    assert finish.completion_tokens == len(tokens)


async def more_answers_than_run_at_once_are_refused(engine: Engine) -> None:
    with pytest.raises(EngineRefused, match="n must be from 1 to"):
        await collect(engine, prompt(9, n=1000))


async def closing_while_it_reads_aborts(engine: Engine) -> None:
    async with aclosing(engine.generate(prompt(2000))) as events:
        await anext(events)
        assert not await is_idle(engine)
    await _soon_idle(engine)


async def closing_while_it_speaks_aborts(engine: Engine) -> None:
    async with aclosing(engine.generate(prompt(40, max_new_tokens=500))) as events:
        async for event in events:
            if isinstance(event, TokenEvent):
                break
    await _soon_idle(engine)


async def a_prompt_over_the_limit_is_refused_with_its_numbers(engine: Engine) -> None:
    limit = (await engine.info()).context_tokens[Attention.FULL]
    with pytest.raises(PromptTooLong) as refused:
        await collect(engine, prompt(limit, max_new_tokens=1))
    assert (refused.value.num_tokens, refused.value.limit) == (limit + 1, limit)
    assert refused.value.attention is Attention.FULL
    assert await is_idle(engine)


async def an_empty_prompt_is_refused(engine: Engine) -> None:
    with pytest.raises(EngineRefused):
        await collect(engine, prompt(0))


async def a_deadline_is_kept(engine: Engine) -> None:
    started_s = time.monotonic()
    late = prompt(4000, deadline_s=started_s + 0.15)
    with pytest.raises(RequestExpired):
        await collect(engine, late)
    assert time.monotonic() - started_s < 1
    await _soon_idle(engine)


async def requests_run_side_by_side(engine: Engine) -> None:
    alone = await collect(engine, prompt(90))
    together = await asyncio.gather(*(collect(engine, prompt(90)) for _ in range(3)))
    for events in together:
        assert [e for e in events if isinstance(e, TokenEvent)] == [
            e for e in alone if isinstance(e, TokenEvent)
        ]


async def the_tokenizer_is_the_one_that_info_names(engine: Engine) -> None:
    files = await engine.tokenizer()
    info = await engine.info()
    assert files.digest == info.tokenizer_digest
    assert files.tokenizer_json.startswith(b"{")
    assert files.stop_ids
    assert info.context_tokens[Attention.FULL] <= info.window_tokens


async def _soon_idle(engine: Engine) -> None:
    """KV is freed within 250 ms of an abort; the rest of the second is for a busy machine."""
    until_s = time.monotonic() + 1
    while not await is_idle(engine):
        assert time.monotonic() < until_s
        await asyncio.sleep(0.01)


CLAUSES = (
    full_attention_reads_then_speaks_then_finishes,
    progress_grows_to_the_whole_prompt,
    hierarchical_attention_says_once_what_it_attended,
    a_stop_id_ends_the_answer_unsent,
    logprobs_come_when_asked_for,
    greedy_answers_repeat,
    several_answers_are_those_of_as_many_seeds,
    more_answers_than_run_at_once_are_refused,
    closing_while_it_reads_aborts,
    closing_while_it_speaks_aborts,
    a_prompt_over_the_limit_is_refused_with_its_numbers,
    an_empty_prompt_is_refused,
    a_deadline_is_kept,
    requests_run_side_by_side,
    the_tokenizer_is_the_one_that_info_names,
)
