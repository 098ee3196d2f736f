"""The supervisor over real, scripted rank processes."""

import asyncio
import os
import signal
import time
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from engines.api import (
    AttendedEvent,
    EngineBusy,
    EngineLost,
    EngineStatus,
    FinishEvent,
    ProgressEvent,
    RequestExpired,
    TokenEvent,
)
from engines.face.client import RemoteEngine
from engines.face.wire import encode_request
from engines.gang.supervisor import Supervisor
from tests.engines.face.served import serving
from tests.engines.gang.scripted_gang import (
    collect,
    expected_tokens,
    rank_pids,
    request,
    running,
    scripted_supervisor,
    tokens_of,
    until,
    until_told,
)
from tests.engines.gang.scripted_rank import (
    CROWDED,
    DISAGREES,
    HANGS,
    HUGE,
    LATE,
    PACED,
    RAISES,
    SLOW_READ,
)

pytestmark = pytest.mark.ranks

PROMPT = list(range(30))


async def test_progress_comes_before_the_tokens_and_one_finish_last(tmp_path: Path) -> None:
    async with running(scripted_supervisor(tmp_path)) as engine:
        events = await collect(engine.generate(request(*PROMPT)))
    assert [type(event) for event in events] == [
        *[ProgressEvent] * 4,
        *[TokenEvent] * 5,
        FinishEvent,
    ]
    assert tokens_of(events) == expected_tokens(PROMPT, 5)


async def test_hierarchical_attention_tells_its_spans_before_the_tokens(tmp_path: Path) -> None:
    async with running(scripted_supervisor(tmp_path)) as engine:
        events = await collect(engine.generate(request(*PROMPT, question_start=25)))
    kinds = [type(event) for event in events]
    assert kinds.index(AttendedEvent) == kinds.index(TokenEvent) - 1
    assert tokens_of(events) == expected_tokens(PROMPT, 5)


async def test_requests_side_by_side_each_get_their_own_answer(tmp_path: Path) -> None:
    prompts = [[seed, *range(10 + 7 * seed)] for seed in range(4)]
    async with running(scripted_supervisor(tmp_path)) as engine:
        answers = await asyncio.gather(
            *(collect(engine.generate(request(*prompt, new=12))) for prompt in prompts)
        )
    for prompt, events in zip(prompts, answers, strict=True):
        assert tokens_of(events) == expected_tokens(prompt, 12)


async def test_leaving_during_a_long_step_stops_it_on_every_rank_at_once(tmp_path: Path) -> None:
    async with running(scripted_supervisor(tmp_path)) as engine:
        reading = asyncio.ensure_future(collect(engine.generate(request(SLOW_READ, *PROMPT))))
        await until(lambda: "open 1" in journal(tmp_path, 1))
        reading.cancel()
        left_s = time.monotonic()
        await until(lambda: all("close 1" in journal(tmp_path, rank) for rank in (0, 1)))
        assert stamp(tmp_path, 1, "cancel 1") - left_s < 0.25
        assert stamp(tmp_path, 0, "close 1") - left_s < 0.25
        assert tokens_of(await collect(engine.generate(request(1)))) == expected_tokens([1], 5)


async def test_leaving_between_tokens_frees_the_sequence(tmp_path: Path) -> None:
    async with running(scripted_supervisor(tmp_path)) as engine:
        async with aclosing(engine.generate(request(PACED, new=100))) as events:
            async for event in events:
                if isinstance(event, TokenEvent):
                    break
        assert (await engine.info()).load.running == 1
        await until_told(engine, lambda info: info.load.running == 0)
        assert all("close 1" in journal(tmp_path, rank) for rank in (0, 1))
        assert (await engine.info()).load.kv_tokens == 0


async def test_a_full_queue_is_busy_and_a_queued_request_may_leave(tmp_path: Path) -> None:
    async with running(scripted_supervisor(tmp_path, max_running=1, max_queued=2)) as engine:
        first = asyncio.ensure_future(collect(engine.generate(request(SLOW_READ))))
        await until(lambda: "open 1" in journal(tmp_path, 1))
        queued = [asyncio.ensure_future(collect(engine.generate(request(i)))) for i in (1, 2)]
        await asyncio.sleep(0)
        with pytest.raises(EngineBusy) as busy:
            await collect(engine.generate(request(3)))
        assert busy.value.queued == 2
        assert busy.value.retry_after_s >= 1
        queued[0].cancel()
        first.cancel()
        assert tokens_of(await queued[1]) == expected_tokens([2], 5)
        assert "open 2" not in journal(tmp_path, 1)


async def test_a_deadline_ends_a_request_that_is_being_read(tmp_path: Path) -> None:
    async with running(scripted_supervisor(tmp_path)) as engine:
        late = replace(request(SLOW_READ), deadline_s=time.monotonic() + 0.2)
        with pytest.raises(RequestExpired):
            await collect(engine.generate(late))
        await until(lambda: "close 1" in journal(tmp_path, 1))


async def test_a_killed_rank_pauses_the_stream_and_changes_no_token(tmp_path: Path) -> None:
    async with running(scripted_supervisor(tmp_path)) as engine:
        stream = engine.generate(request(PACED, *PROMPT, new=20))
        events, statuses = [], set()
        async with aclosing(stream):
            async for event in stream:
                events.append(event)
                if len(tokens_of(events)) == 5 and isinstance(event, TokenEvent):
                    kill_one_rank(signal.SIGKILL)
                statuses.add((await engine.info()).status)
        info = await engine.info()
    assert tokens_of(events) == expected_tokens([PACED, *PROMPT], 20)
    assert (info.epoch, info.status) == (2, EngineStatus.READY)
    assert sum(isinstance(event, FinishEvent) for event in events) == 1


async def test_a_stopped_rank_is_noticed_after_the_step_timeout_and_replaced(
    tmp_path: Path,
) -> None:
    async with running(scripted_supervisor(tmp_path, step_timeout_s=1.0)) as engine:
        stream = asyncio.ensure_future(collect(engine.generate(request(PACED, *PROMPT, new=40))))
        await until(lambda: "open 1" in journal(tmp_path, 1))
        kill_one_rank(signal.SIGSTOP)
        stopped_s = time.monotonic()
        await until_told(engine, lambda info: info.status is EngineStatus.DEGRADED)
        assert time.monotonic() - stopped_s < 2
        assert tokens_of(await stream) == expected_tokens([PACED, *PROMPT], 40)
        assert (await engine.info()).epoch == 2


async def test_a_rank_that_hangs_while_nothing_runs_is_noticed_too(tmp_path: Path) -> None:
    async with running(scripted_supervisor(tmp_path, step_timeout_s=1.0)) as engine:
        kill_one_rank(signal.SIGSTOP)
        await until_told(engine, lambda info: info.epoch == 2)
        assert tokens_of(await collect(engine.generate(request(1)))) == expected_tokens([1], 5)


async def test_a_rank_that_dies_while_the_next_gang_comes_up_is_survived(tmp_path: Path) -> None:
    async with running(scripted_supervisor(tmp_path)) as engine:
        stream = asyncio.ensure_future(collect(engine.generate(request(PACED, *PROMPT, new=20))))
        await until(lambda: "open 1" in journal(tmp_path, 1))
        for epoch in (1, 2, 3):
            await until(lambda: len(rank_pids(os.getpid())) == 3)
            kill_one_rank(signal.SIGKILL)
            await until_told(engine, lambda info, epoch=epoch: info.epoch > epoch)  # type: ignore[misc]
        assert tokens_of(await stream) == expected_tokens([PACED, *PROMPT], 20)


async def test_while_degraded_new_work_queues_and_a_full_queue_is_busy(tmp_path: Path) -> None:
    async with (
        running(scripted_supervisor(tmp_path, max_queued=2)) as engine,
        serving(engine) as url,
        RemoteEngine(url) as remote,
        httpx.AsyncClient(trust_env=False, base_url=url) as client,
    ):
        (tmp_path / "slow").touch()
        kill_one_rank(signal.SIGKILL)
        await until_told(engine, lambda info: info.status is EngineStatus.DEGRADED)
        ready = await client.get("/health/ready")
        assert (ready.status_code, ready.json()) == (503, {"status": "degraded"})
        waiting = [asyncio.ensure_future(collect(remote.generate(request(i)))) for i in (1, 2)]
        await until(lambda: engine.load().queued == 2)
        refused = await client.post("/v1/generate", content=encode_request(request(3), 0.0))
        assert refused.status_code == 503
        assert int(refused.headers["retry-after"]) >= 1
        with pytest.raises(EngineBusy):
            await collect(remote.generate(request(3)))
        answers = [tokens_of(await answer) for answer in waiting]
        assert answers == [expected_tokens([i], 5) for i in (1, 2)]
        assert (await client.get("/health/ready")).status_code == 200


async def test_a_slow_reader_does_not_hold_its_kv_past_the_deadline(tmp_path: Path) -> None:
    async with running(scripted_supervisor(tmp_path)) as engine:
        late = replace(request(PACED, new=150), deadline_s=time.monotonic() + 0.4)
        async with aclosing(engine.generate(late)) as events:
            await anext(events)
            await until(lambda: engine.load().running == 0)
            with pytest.raises(RequestExpired):
                async for _ in events:
                    pass


async def test_a_shortage_of_memory_neither_ends_the_gang_nor_changes_a_token(
    tmp_path: Path,
) -> None:
    prompts = [[CROWDED, 1], [HUGE, *PROMPT], [CROWDED, 2, 3], [PACED], [HUGE, LATE, 1, 2, 3]]
    async with running(scripted_supervisor(tmp_path, max_queued=9)) as engine:
        answers = await asyncio.gather(
            *(collect(engine.generate(request(*prompt, new=12))) for prompt in prompts)
        )
        assert (await engine.info()).epoch == 1
    assert [tokens_of(events) for events in answers] == [expected_tokens(p, 12) for p in prompts]
    assert "join" in journal(tmp_path, 0)
    assert "leave" in journal(tmp_path, 1)


async def test_the_engine_says_degraded_until_the_next_gang_is_up(tmp_path: Path) -> None:
    async with running(scripted_supervisor(tmp_path)) as engine:
        kill_one_rank(signal.SIGKILL)
        started_s = time.monotonic()
        while (await engine.info()).status is EngineStatus.READY:
            assert time.monotonic() - started_s < 1
            await asyncio.sleep(0.005)
        assert (await engine.info()).status is EngineStatus.DEGRADED
        assert tokens_of(await collect(engine.generate(request(1)))) == expected_tokens([1], 5)


@pytest.mark.parametrize("poison", [RAISES, DISAGREES, HANGS])
async def test_a_request_that_breaks_every_gang_is_given_up_and_only_it(
    tmp_path: Path, poison: int
) -> None:
    async with running(scripted_supervisor(tmp_path, step_timeout_s=0.5)) as engine:
        with pytest.raises(EngineLost, match="3 times in a row"):
            await collect(engine.generate(request(poison, 1)))
        assert tokens_of(await collect(engine.generate(request(1)))) == expected_tokens([1], 5)
        assert (await engine.info()).epoch >= 4


async def test_ranks_that_cannot_load_are_a_clear_failure_at_start(tmp_path: Path) -> None:
    (tmp_path / "refuse").touch()
    engine = scripted_supervisor(tmp_path)
    with pytest.raises(EngineLost, match="this model is not supported"):
        await engine.run()
    with pytest.raises(EngineLost):
        await collect(engine.generate(request(1)))


async def test_stopping_ends_every_stream_and_every_process_quickly(tmp_path: Path) -> None:
    engine: Supervisor
    async with running(scripted_supervisor(tmp_path)) as engine:
        pids = rank_pids(os.getpid())
        assert len(pids) == 3
        reading = asyncio.ensure_future(collect(engine.generate(request(SLOW_READ))))
        await until(lambda: "open 1" in journal(tmp_path, 1))
        started_s = time.monotonic()
    with pytest.raises(EngineLost, match="stopping"):
        await reading
    assert time.monotonic() - started_s < 2
    assert not rank_pids(os.getpid())


def journal(folder: Path, rank: int) -> list[str]:
    path = folder / f"rank{rank}.log"
    lines = path.read_text().splitlines() if path.exists() else []
    return [line.partition(" ")[2] for line in lines]


def stamp(folder: Path, rank: int, what: str) -> float:
    lines = (folder / f"rank{rank}.log").read_text().splitlines()
    return next(float(line.split()[0]) for line in lines if line.endswith(what))


def kill_one_rank(number: signal.Signals) -> None:
    """The forker is the first of the supervisor's descendants, its ranks follow."""
    os.kill(max(rank_pids(os.getpid())), number)
