"""`make bench NAME=chaos`: ranks of a tiny model killed and stopped while requests run.

The last line is one JSON object; every count but `rounds` should be 0.
"""

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path
from random import Random

from tests.engines.gang.chaos import Tally, play
from tests.engines.gang.scripted_gang import running
from tests.engines.gang.tiny_gang import tiny_config, tiny_supervisor


async def bench(rounds: int, seed: int) -> Tally:
    with tempfile.TemporaryDirectory() as folder:
        config = tiny_config(Path(folder), step_timeout_s=5.0, max_deaths=6)
        async with running(tiny_supervisor(config)) as engine:
            tally = await play(engine, rounds, Random(seed))
            epochs = (await engine.info()).epoch
    print(f"seed {seed}: {tally.signals} signals, {epochs} gangs")
    return tally


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=time.time_ns() % (1 << 32))
    args = parser.parse_args()
    tally = asyncio.run(bench(args.rounds, args.seed))
    print(
        json.dumps(
            {
                "rounds": tally.rounds,
                "lost": tally.lost,
                "repeated": tally.repeated,
                "failed": tally.failed,
            }
        )
    )
    return 1 if tally.harmed else 0


if __name__ == "__main__":
    raise SystemExit(main())
