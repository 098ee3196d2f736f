"""A real gang of a tiny model that runs out of memory, and one that reads while it speaks."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from itertools import pairwise
from pathlib import Path

import pytest

from engines.api import (
    EngineLost,
    Event,
    GenerateRequest,
    ProgressEvent,
    TokenEvent,
)
from engines.gang.supervisor import Supervisor
from tests.engines.gang.scripted_gang import collect, rank_pids, running, tokens_of

pytest.importorskip("torch")

from tests.engines.gang.tiny_gang import CHUNK_TOKENS, greedy, tiny_config, tiny_supervisor
from tests.engines.gang.tiny_rank import HUNGRY
from tests.engines.local.families import prompt_of

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(300)]

SPEAKER = greedy(prompt_of(40), 150)


def hungry(num_tokens: int, new: int = 12) -> GenerateRequest:
    return greedy([HUNGRY if i % 2 else id_ for i, id_ in enumerate(prompt_of(num_tokens))], new)


async def test_a_real_gang_reads_fairly_and_outlives_a_shortage_of_memory(tmp_path: Path) -> None:
    """One engine for all clauses: a real gang takes seconds to start."""
    async with running(tiny_supervisor(tiny_config(tmp_path))) as engine:
        for clause in CLAUSES:
            await clause(engine, tmp_path)
            (tmp_path / "short").unlink(missing_ok=True)
            assert (await engine.info()).epoch == 1


async def a_stream_waits_for_one_chunk_at_most_while_16k_tokens_are_read(
    engine: Supervisor, _: Path
) -> None:
    seen: list[Event] = []
    speaks = asyncio.Event()

    async def watch(request: GenerateRequest) -> None:
        async with aclosing(engine.generate(request)) as events:
            async for event in events:
                seen.append(event)
                speaks.set()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(watch(SPEAKER))
        await speaks.wait()
        tasks.create_task(watch(greedy(prompt_of(16_384), 1)))
    gaps = gaps_of(seen)
    assert len(gaps) > 60
    assert max(gaps) <= CHUNK_TOKENS


def gaps_of(events: list[Event]) -> list[int]:
    """Prompt tokens of the long request that were read between two tokens of the stream."""
    gaps, read, told = [], 0, 0
    for event in events:
        if isinstance(event, ProgressEvent) and event.total_tokens > 10_000:
            read += event.done_tokens - told
            told = event.done_tokens
        elif isinstance(event, TokenEvent) and read:
            gaps.append(read)
            read = 0
    return gaps


def chunks_of(events: list[Event]) -> list[int]:
    done = [0, *(event.done_tokens for event in events if isinstance(event, ProgressEvent))]
    return [later - earlier for earlier, later in pairwise(done)]


def a_failed_allocation_halves_the_chunk(
    when: str,
) -> Callable[[Supervisor, Path], Awaitable[None]]:
    async def clause(engine: Supervisor, folder: Path) -> None:
        quiet = tokens_of(await collect(engine.generate(hungry(600))))
        spoken = tokens_of(await collect(engine.generate(SPEAKER)))
        pids = rank_pids(os.getpid())
        (folder / "short").write_text(f"{when} 40")
        speaking = asyncio.ensure_future(collect(engine.generate(SPEAKER)))
        events = await collect(engine.generate(hungry(600)))
        assert tokens_of(events) == quiet
        assert max(chunks_of(events)) <= 80
        assert tokens_of(await speaking) == spoken
        assert rank_pids(os.getpid()) == pids

    return clause


async def a_request_that_no_chunk_is_small_enough_for_fails_alone(
    engine: Supervisor, folder: Path
) -> None:
    quiet = tokens_of(await collect(engine.generate(SPEAKER)))
    (folder / "short").write_text("before 0")
    speaking = asyncio.ensure_future(collect(engine.generate(SPEAKER)))
    with pytest.raises(EngineLost, match=r"memory does not suffice.*can't allocate memory"):
        await collect(engine.generate(hungry(600)))
    assert tokens_of(await speaking) == quiet


CLAUSES = (
    a_stream_waits_for_one_chunk_at_most_while_16k_tokens_are_read,
    a_failed_allocation_halves_the_chunk("before"),
    a_failed_allocation_halves_the_chunk("after"),
    a_request_that_no_chunk_is_small_enough_for_fails_alone,
)
