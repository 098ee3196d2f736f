"""A supervisor over scripted ranks, for tests: real processes and sockets, no torch."""

import asyncio
import time
from array import array
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path

import psutil

from engines.api import (
    Attention,
    Engine,
    EngineInfo,
    Event,
    GenerateRequest,
    Sampling,
    TokenEvent,
    TokenizerFiles,
)
from engines.config import EngineConfig, HierarchicalConfig
from engines.gang.launcher import ForkLauncher
from engines.gang.limits import GangLimits
from engines.gang.supervisor import Supervisor, SupervisorParts
from tests.engines.gang.scripted_rank import VOCAB, next_token

TOKENIZER = TokenizerFiles(
    tokenizer_json=b"{}",
    chat_template="",
    special_tokens={},
    stop_ids=(),
    digest="none",
)


def scripted_config(folder: Path, **changes: object) -> EngineConfig:
    values: dict[str, object] = {
        "model_dir": folder,
        "model_name": "scripted",
        "ranks": 2,
        "prefill_chunk_tokens": 8,
        "max_running": 4,
        "max_queued": 4,
        "step_timeout_s": 20.0,
        "hierarchical": HierarchicalConfig(chunk_tokens=8, anchor_tokens=2, top_k=2),
    }
    return EngineConfig(**{**values, **changes})  # type: ignore[arg-type]


def scripted_limits(config: EngineConfig) -> GangLimits:
    return GangLimits.of(config, vocab_size=VOCAB, window_tokens=200, kv_budget_tokens=400)


def scripted_supervisor(folder: Path, **changes: object) -> Supervisor:
    config = scripted_config(folder, **changes)
    return Supervisor(
        SupervisorParts(
            config=config,
            limits=scripted_limits(config),
            kv_bytes_per_token=1,
            tokenizer=TOKENIZER,
            launcher=ForkLauncher(rank_main="tests.engines.gang.scripted_rank:main"),
        )
    )


@asynccontextmanager
async def running(supervisor: Supervisor) -> AsyncIterator[Supervisor]:
    """Ready inside; stopped, with every process gone, afterwards."""
    serving = asyncio.ensure_future(supervisor.run())
    try:
        await supervisor.wait_ready()
        yield supervisor
    finally:
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving


def request(*ids: int, new: int = 5, question_start: int | None = None) -> GenerateRequest:
    """Hierarchical when `question_start` is given."""
    return GenerateRequest(
        request_id="r",
        prompt_ids=array("i", ids),
        max_new_tokens=new,
        attention=Attention.FULL if question_start is None else Attention.HIERARCHICAL,
        question_start=question_start or 0,
        sampling=Sampling(temperature=0),
    )


def expected_tokens(prompt: tuple[int, ...] | list[int], num_tokens: int) -> list[int]:
    text = list(prompt)
    for _ in range(num_tokens):
        text.append(next_token(text))
    return text[len(prompt) :]


async def collect(stream: AsyncGenerator[Event, None]) -> list[Event]:
    async with aclosing(stream) as events:
        return [event async for event in events]


def tokens_of(events: list[Event]) -> list[int]:
    return [event.id for event in events if isinstance(event, TokenEvent)]


async def until(condition: Callable[[], bool], timeout_s: float = 5.0) -> None:
    until_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < until_s, "it did not come about"
        await asyncio.sleep(0.005)


async def until_told(
    engine: Engine, condition: Callable[[EngineInfo], bool], timeout_s: float = 10.0
) -> None:
    """Wait until the engine's own description fulfils the condition."""
    until_s = time.monotonic() + timeout_s
    while not condition(await engine.info()):
        assert time.monotonic() < until_s, "it did not come about"
        await asyncio.sleep(0.001)


def rank_pids(supervisor_pid: int) -> list[int]:
    """Processes under a supervisor: the forker and its ranks, dead ones that nobody reaped too.

    What other tests leave running under pytest, engines of theirs included, is none of them.
    """
    forkers = [p for p in psutil.Process(supervisor_pid).children() if _is_forker(p)]
    return [p.pid for forker in forkers for p in (forker, *forker.children(recursive=True))]


def _is_forker(process: psutil.Process) -> bool:
    try:
        return "engines.gang.forker" in process.cmdline()
    except psutil.ZombieProcess:
        return True
    except psutil.NoSuchProcess:
        return False
