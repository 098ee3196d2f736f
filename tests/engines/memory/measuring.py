"""Runs a real gang of the bundled model and reads from the kernel what its ranks took at most."""

import asyncio
import json
import os
import tempfile
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

from engines.api import GenerateRequest, Sampling
from engines.config import EngineConfig
from engines.memory import RankNeed, rank_need, shape_of
from engines.models.catalog import default_model_dir
from engines.wiring import build_supervisor
from tests.engines.gang.scripted_gang import collect, rank_pids, running

NUM_NEW = 2
ROOM_TOKENS = 64 << 10
RESET_PEAK = "5"
"""Written to clear_refs, it sets a process's high-water mark of resident memory to now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One rank's private anonymous bytes at their peak, and what was foretold."""

    private: int
    need: RankNeed

    @property
    def ratio(self) -> float:
        return self.private / self.need.private


def measured_ranks(
    prompt_tokens: int, *, ranks: int = 2, dtype: str = "bfloat16", chunk_tokens: int = 512
) -> list[Measured]:
    """What each rank took for the prefill of random tokens, loading not counted."""
    with long_window_model() as folder:
        config = EngineConfig(
            model_dir=folder,
            model_name="measured",
            ranks=ranks,
            dtype=dtype,
            prefill_chunk_tokens=chunk_tokens,
            kv_budget_bytes=4 << 30,
            step_timeout_s=300.0,
        )
        privates = asyncio.run(_privates(config, prompt_tokens))
        shape = shape_of(json.loads((folder / "config.json").read_text()))
        need = rank_need(shape, config, prompt_tokens + NUM_NEW)
        return [Measured(private=private, need=need) for private in privates]


@contextmanager
def long_window_model() -> Iterator[Path]:
    """The bundled model, said to have been trained for longer prompts than it was."""
    source = default_model_dir()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file in source.iterdir():
            if file.name != "config.json":
                (folder / file.name).symlink_to(file)
        config = json.loads((source / "config.json").read_text())
        config["max_position_embeddings"] = ROOM_TOKENS
        (folder / "config.json").write_text(json.dumps(config))
        yield folder


async def _privates(config: EngineConfig, prompt_tokens: int) -> list[int]:
    random = Random(0)
    request = GenerateRequest(
        request_id="measured",
        prompt_ids=array("i", (random.randrange(3, 40_000) for _ in range(prompt_tokens))),
        max_new_tokens=NUM_NEW,
        sampling=Sampling(temperature=0),
    )
    async with running(build_supervisor(config)) as engine:
        pids = rank_pids(os.getpid())[1:]  # the first one forks them
        assert len(pids) == config.ranks
        for pid in pids:
            _forget_peak(pid)
        await collect(engine.generate(request))
        return [_peak_private(pid) for pid in pids]


def _forget_peak(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text(RESET_PEAK)


def _peak_private(pid: int) -> int:
    """The high-water mark less what the rank shares with its siblings or maps from files."""
    now = _kernel_bytes(pid, "smaps_rollup")
    shared = now["Rss"] - now["Private_Dirty"]
    return _kernel_bytes(pid, "status")["VmHWM"] - shared


def _kernel_bytes(pid: int, file: str) -> dict[str, int]:
    lines = (line.split() for line in Path(f"/proc/{pid}/{file}").read_text().splitlines())
    return {parts[0].rstrip(":"): int(parts[1]) << 10 for parts in lines if parts[-1] == "kB"}
