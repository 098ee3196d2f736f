"""A gang whose ranks torchrun starts, as on two hosts, and `ringway rank` connects."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, aclosing, contextmanager
from pathlib import Path

import psutil
import pytest

from engines.api import TokenEvent
from engines.gang.launcher import ExternalLauncher
from engines.gang.limits import GangLimits
from engines.gang.supervisor import Supervisor, SupervisorParts
from tests.engines.gang.scripted_gang import TOKENIZER, collect, running, tokens_of

pytest.importorskip("torch")

from engines.config import EngineConfig
from tests.engines.gang.tiny_gang import WINDOW_TOKENS, greedy, tiny_config
from tests.engines.local.families import VOCAB, plain_answer, plain_model, prompt_of

TOKEN = "only-for-this-test"
HOSTS = "127.0.0.1", "127.0.0.2"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def external_supervisor(config: EngineConfig, port: int) -> Supervisor:
    limits = GangLimits.of(
        config, vocab_size=VOCAB, window_tokens=WINDOW_TOKENS, kv_budget_tokens=60_000
    )
    return Supervisor(
        SupervisorParts(
            config=config,
            limits=limits,
            kv_bytes_per_token=1,
            tokenizer=TOKENIZER,
            launcher=ExternalLauncher(),
            door_host="0.0.0.0",
            door_port=port,
            token=TOKEN,
        )
    )


@contextmanager
def torchrun(node: int, master_port: int, supervisor_port: int, model: Path) -> Iterator[int]:
    """One host's torchrun; yields its pid."""
    options = {
        "--nnodes": 2,
        "--node-rank": node,
        "--nproc-per-node": 1,
        "--master-addr": HOSTS[0],
        "--master-port": master_port,
        "--local-addr": HOSTS[node],
        "--max-restarts": 3,
        "--monitor-interval": 0.1,
    }
    arguments = [f"{name}={value}" for name, value in options.items()]
    supervisor = f"{HOSTS[node]}:{supervisor_port}"
    ringway = str(Path(sys.executable).parent / "ringway")
    rank = [ringway, "rank", f"--supervisor={supervisor}", f"--model={model}", "--threads=1"]
    process = subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", *arguments, "--no-python", *rank],
        env={**os.environ, "RINGWAY_RANK_TOKEN": TOKEN},
    )
    try:
        yield process.pid
    finally:
        ranks = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        for rank_process in ranks:
            rank_process.kill()
        process.wait()


def rank_under(torchrun_pid: int) -> int:
    [rank] = psutil.Process(torchrun_pid).children()
    return rank.pid


@pytest.mark.ranks
@pytest.mark.timeout(300)
async def test_ranks_that_torchrun_starts_on_two_hosts_answer_exactly_and_come_back(
    tmp_path: Path,
) -> None:
    config = tiny_config(tmp_path)
    prompt = prompt_of(500)
    exact = plain_answer(plain_model(tmp_path, "sdpa"), prompt, 40).tokens
    master_port, supervisor_port = free_port(), free_port()
    with ExitStack() as hosts:
        agents = [
            hosts.enter_context(torchrun(node, master_port, supervisor_port, tmp_path))
            for node in (0, 1)
        ]
        async with running(external_supervisor(config, supervisor_port)) as engine:
            assert tokens_of(await collect(engine.generate(greedy(prompt, 40)))) == exact
            events = []
            async with aclosing(engine.generate(greedy(prompt, 40))) as stream:
                async for event in stream:
                    events.append(event)
                    if isinstance(event, TokenEvent) and len(tokens_of(events)) == 5:
                        await asyncio.to_thread(os.kill, rank_under(agents[1]), signal.SIGKILL)
            assert tokens_of(events) == exact
            assert (await engine.info()).epoch > 1
