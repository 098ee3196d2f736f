"""Replicas under load: who reads next, what is learned of their pace, what is tried again."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from time import monotonic

import pytest

from engines.api import (
    EngineBusy,
    EngineInfo,
    Event,
    GenerateRequest,
    ProgressEvent,
    RequestExpired,
    TextEvent,
    TokenizerFiles,
)
from gateway.upstreams.fleet import Fleet, RetrySettings
from gateway.upstreams.pace import Pace, PaceSettings
from gateway.upstreams.replica import Replica
from tests.gateway.upstreams.mock_upstream import Reply, delta, finish, mock, said, sse
from tests.gateway.upstreams.serving import engine_over, heard, request, text_of

LONG, SHORT = 20_000, 100


@dataclass(slots=True)
class Playing:
    """A server that plays events, seconds to wait and errors."""

    steps: Sequence[Event | float | Exception]
    asked: list[GenerateRequest] = field(default_factory=list)
    calls: "asyncio.Queue[GenerateRequest]" = field(default_factory=asyncio.Queue)

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Event, None]:
        self.asked.append(request)
        self.calls.put_nowait(request)
        for step in self.steps:
            if isinstance(step, Exception):
                raise step
            if isinstance(step, float):
                await asyncio.sleep(step)
            else:
                yield step


class Nothing:
    async def info(self) -> EngineInfo:
        raise NotImplementedError

    async def tokenizer(self) -> TokenizerFiles:
        raise NotImplementedError


def fleet_of(*servers: Playing) -> Fleet:
    replicas = [
        Replica(name=f"r{i}", server=server, clock=monotonic) for i, server in enumerate(servers)
    ]
    return Fleet(replicas, Nothing(), retries=RetrySettings(patience_s=0.2, least_wait_s=0.01))


BUSY = EngineBusy(queued=1, retry_after_s=0.01)


async def test_after_the_first_event_nothing_is_tried_again() -> None:
    servers = [Playing([TextEvent("He"), BUSY]) for _ in range(2)]
    with pytest.raises(EngineBusy):
        await heard(fleet_of(*servers))
    assert [len(one.asked) for one in servers] in ([0, 1], [1, 0])


async def test_before_it_every_replica_is_tried_once() -> None:
    servers = [Playing([BUSY]), Playing([BUSY]), Playing([BUSY])]
    with pytest.raises(EngineBusy):
        await heard(fleet_of(*servers))
    assert [len(one.asked) for one in servers] == [1, 1, 1]


@pytest.mark.parametrize("order", [1, -1])
async def test_a_prompt_goes_where_least_is_left_to_read(order: int) -> None:
    reading = Playing([60.0])
    nearly_done = Playing([ProgressEvent(1000 - SHORT, 1000), 60.0])
    fleet = fleet_of(*[reading, nearly_done][::order])
    loose = {"cache_key": "ann/"}
    running = [asyncio.create_task(heard(fleet, request(1000, **loose))) for _ in range(2)]
    for server in (reading, nearly_done):
        await server.calls.get()
    await asyncio.sleep(0)
    running.append(asyncio.create_task(heard(fleet, request(SHORT, **loose))))
    await nearly_done.calls.get()
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    assert (len(reading.asked), len(nearly_done.asked)) == (1, 2)
    assert [one.waiting_tokens for one in fleet.replicas] == [0, 0]


async def test_a_prefill_that_was_seen_is_learned_by_its_replica_alone() -> None:
    usage = {"choices": [], "usage": {"prompt_tokens": 2000, "completion_tokens": 1}}
    slow = Reply(steps=sse(delta("x"), finish(), usage, b"[DONE]"), before_s=0.3)
    async with mock(lambda _: slow) as up, engine_over(up.url, up.url + "/b") as engine:
        assert isinstance(engine, Fleet)
        learning, untaught = engine.replicas
        before_s = learning.pace.estimate_s(2000)
        async for _ in learning.generate(request(2000)):
            pass
    assert 0.3 <= learning.pace.estimate_s(2000) != before_s
    assert untaught.pace.estimate_s(2000) == before_s


async def test_a_deadline_grows_with_the_prompt() -> None:
    reply = Reply(steps=said("late").steps, before_s=0.6)
    settings = PaceSettings(k=1e-3, c=0.0, slack=4.0, least_s=0.1)
    async with mock(lambda _: reply) as up, engine_over(up.url) as engine:
        assert isinstance(engine, Fleet)
        [replica] = engine.replicas
        replica.pace = Pace(settings)
        with pytest.raises(RequestExpired, match="said nothing for"):
            await heard(engine, request(SHORT))
        assert text_of(await heard(engine, request(LONG))) == "late"


async def test_an_answer_that_never_ends_is_given_up() -> None:
    dribble = [step for _ in range(40) for step in (*sse(delta("x")), 0.1)]
    async with mock(lambda _: Reply(steps=dribble)) as up, engine_over(up.url) as engine:
        assert isinstance(engine, Fleet)
        [replica] = engine.replicas
        replica.pace = Pace(PaceSettings(least_s=0.2))
        with pytest.raises(RequestExpired, match="was not finished within"):
            await heard(engine, request(max_new_tokens=1))
