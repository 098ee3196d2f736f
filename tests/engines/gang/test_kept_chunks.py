"""A real gang of a tiny model whose rank dies while it reads, and questions that come again."""

import asyncio
import os
import signal
from array import array
from contextlib import aclosing, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from engines.api import (
    AttendedEvent,
    Attention,
    Event,
    FinishEvent,
    GenerateRequest,
    ProgressEvent,
    Sampling,
)
from engines.config import EngineConfig, SegmentsConfig
from engines.gang.supervisor import Supervisor
from tests.engines.gang.scripted_gang import collect, rank_pids, running, tokens_of, until

pytest.importorskip("torch")

from tests.engines.gang.tiny_gang import tiny_config, tiny_supervisor
from tests.engines.local.families import prompt_of

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(300)]

NUM_TOKENS, QUESTION = 21_000, 20
"""Longer than the tiny model's window of 20,000."""
SHORTER = 3_000

ASK = GenerateRequest(
    request_id="r",
    prompt_ids=array("i", prompt_of(NUM_TOKENS)),
    max_new_tokens=6,
    attention=Attention.HIERARCHICAL,
    question_start=NUM_TOKENS - QUESTION,
    sampling=Sampling(temperature=0),
)


def config(folder: Path) -> EngineConfig:
    folders = folder / "ram", folder / "disk"
    for made in folders:
        made.mkdir()
    segments = SegmentsConfig(ram_folder=folders[0], folder=folders[1], ram_bytes=1 << 18)
    return tiny_config(folder / "model", segments=segments)


def segments_in(folder: Path) -> dict[str, int]:
    found = {}
    for path in folder.glob("*/*/*/*.kv"):
        with suppress(FileNotFoundError):  # a rank may just be throwing it away
            found[path.name] = path.stat().st_mtime_ns
    return found


def attended(events: list[Event]) -> AttendedEvent:
    (event,) = (e for e in events if isinstance(e, AttendedEvent))
    return event


def finish(events: list[Event]) -> FinishEvent:
    assert isinstance(events[-1], FinishEvent)
    return events[-1]


async def killed_on_the_way(engine: Supervisor, request: GenerateRequest) -> list[Event]:
    """A rank is killed when 60 % of the prompt have been read."""
    events: list[Event] = []
    is_killed = False
    async with aclosing(engine.generate(request)) as stream:
        async for event in stream:
            events.append(event)
            match event:
                case ProgressEvent(done_tokens=done) if not is_killed and done > 0.6 * NUM_TOKENS:
                    is_killed = True
                    os.kill(max(rank_pids(os.getpid())), signal.SIGKILL)
    assert is_killed
    return events


async def test_finished_chunks_outlive_a_rank_and_serve_the_next_question(tmp_path: Path) -> None:
    async with running(tiny_supervisor(config(tmp_path))) as engine:
        quiet = await collect(engine.generate(ASK))
        await until(lambda: not segments_in(tmp_path))  # without a key nothing stays behind
        mine = replace(ASK, cache_key="mine")
        watching = asyncio.create_task(_oldest(tmp_path))
        events = await killed_on_the_way(engine, mine)
        assert (await engine.info()).epoch == 2
        assert tokens_of(events) == tokens_of(quiet)
        assert attended(events) == attended(quiet)
        assert finish(events).cached_tokens == 0, "its own chunks are no saving"
        kept = segments_in(tmp_path)
        before_the_kill = await watching
        assert before_the_kill.items() <= kept.items()
        for tier in ("ram", "disk"):
            assert any((tmp_path / tier).rglob("*.kv")), f"nothing was kept in {tier}"

        again = await collect(engine.generate(mine))
        assert tokens_of(again) == tokens_of(quiet)
        assert finish(again).cached_tokens == NUM_TOKENS - QUESTION - 16
        assert segments_in(tmp_path) == kept
        other = await collect(engine.generate(replace(ASK, cache_key="yours")))
        assert finish(other).cached_tokens == 0


@pytest.mark.parametrize("other", [7, 8])
async def test_a_question_is_answered_as_well_later_as_first(tmp_path: Path, other: int) -> None:
    """From chunks that an earlier question left behind: the same places, the same tokens."""
    context = ASK.prompt_ids[:SHORTER]
    first = asking(context, 0, "session")
    later = asking(context, other, "session")
    async with running(tiny_supervisor(config(tmp_path))) as engine:
        await collect(engine.generate(first))
        from_store = await collect(engine.generate(later))
        alone = await collect(engine.generate(replace(later, cache_key="fresh")))
    assert finish(from_store).cached_tokens == SHORTER - 16
    assert finish(alone).cached_tokens == 0
    assert attended(from_store) == attended(alone)
    assert tokens_of(from_store) == tokens_of(alone)


def asking(context: "array[int]", seed: int, key: str) -> GenerateRequest:
    """A question of its own words and length about the same text."""
    question = array("i", prompt_of(QUESTION + seed, seed=seed))
    return replace(ASK, prompt_ids=context + question, question_start=len(context), cache_key=key)


async def _oldest(folder: Path) -> dict[str, int]:
    """What was written first: a third of all chunks, well before a rank is killed."""
    while len(found := segments_in(folder)) < NUM_TOKENS // 64 // 3:  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    return found
