from pathlib import Path
from random import Random, SystemRandom

import pytest

from tests.engines.gang.scripted_gang import running

pytest.importorskip("torch")

from tests.engines.gang.chaos import play
from tests.engines.gang.tiny_gang import tiny_config, tiny_supervisor

ROUNDS = 3


@pytest.mark.ranks
@pytest.mark.timeout(300)
async def test_ranks_killed_and_stopped_at_random_harm_no_stream(tmp_path: Path) -> None:
    """`make bench NAME=chaos` plays 20 rounds."""
    seed = SystemRandom().randrange(1 << 32)
    config = tiny_config(tmp_path, step_timeout_s=3.0, max_deaths=6)
    async with running(tiny_supervisor(config)) as engine:
        tally = await play(engine, ROUNDS, Random(seed))
    assert tally.signals >= ROUNDS
    assert tally.harmed == 0, f"seed {seed}: {tally}"
