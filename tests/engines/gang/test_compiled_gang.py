"""A gang whose decode runs compiled kernels over shared memory, and ranks that fail in it.

In bfloat16 a stream that was disturbed goes on with the very tokens only if what has been said is
read again as it was first computed: every rounding counts.
"""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path

import pytest
import pytest_asyncio

from engines.api import EngineStatus, GenerateRequest, TokenEvent
from engines.gang.supervisor import Supervisor
from tests.engines.gang.scripted_gang import collect, rank_pids, running, tokens_of, until_told

pytest.importorskip("torch")

from tests.engines.gang.tiny_gang import greedy, tiny_config, tiny_supervisor
from tests.engines.local.families import prompt_of

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(240)]

NUM_NEW = 60
STEP_TIMEOUT_S = 4.0


def compiled_gang(folder: Path) -> Supervisor:
    config = tiny_config(
        folder / "model",
        {"head_dim": 16},
        dtype="bfloat16",
        step_timeout_s=STEP_TIMEOUT_S,
        max_deaths=10,
    )
    return tiny_supervisor(config, rank_main="engines.gang.rank:main", log=folder / "log")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def engine(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Supervisor]:
    folder = tmp_path_factory.mktemp("compiled")
    async with running(compiled_gang(folder)) as engine:
        assert (folder / "log").read_text().count("decode runs compiled layers") == 2
        yield engine


async def told(
    engine: Supervisor, request: GenerateRequest, num_tokens: int, then: Callable[[], None]
) -> list[int]:
    """The tokens of a stream; after so many of them something is done."""
    tokens: list[int] = []
    async with aclosing(engine.generate(request)) as events:
        async for event in events:
            if isinstance(event, TokenEvent):
                tokens.append(event.id)
                if len(tokens) == num_tokens:
                    then()
    return tokens


async def seconds_until_degraded(engine: Supervisor, struck: asyncio.Event) -> float:
    await struck.wait()
    struck_s = time.monotonic()
    await until_told(engine, lambda info: info.status is EngineStatus.DEGRADED)
    return time.monotonic() - struck_s


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("number", "within_s"), [(signal.SIGKILL, 1.0), (signal.SIGSTOP, STEP_TIMEOUT_S + 1.0)]
)
async def test_a_rank_that_fails_in_compiled_decode_is_missed_and_changes_no_token(
    engine: Supervisor, number: signal.Signals, within_s: float
) -> None:
    requests = [greedy(prompt_of(size, seed=size), NUM_NEW) for size in (1, 90, 700)]
    quiet = [tokens_of(await collect(engine.generate(request))) for request in requests]
    struck, in_memory = asyncio.Event(), set(os.listdir("/dev/shm"))

    def strike() -> None:
        os.kill(max(rank_pids(os.getpid())), number)
        struck.set()

    noticing = asyncio.ensure_future(seconds_until_degraded(engine, struck))
    disturbed = await asyncio.gather(
        *(told(engine, request, NUM_NEW, lambda: None) for request in requests[:2]),
        told(engine, requests[2], 30, strike),
    )
    assert list(disturbed) == quiet
    assert await noticing < within_s
    assert set(os.listdir("/dev/shm")) <= in_memory
