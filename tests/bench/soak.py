"""A day's shape in ten minutes: a gateway under mixed load while clients leave and servers fail.

    python -m tests.bench.soak [--minutes 10] [--rate 5] [--disconnects 0.02] [--faults 0.01]
        [--folder KEPT]

`ringway serve` runs over an upstream that refuses, hangs up and falls silent on purpose, with
`ringway ingest` beside it. Keys change every half minute: of each generation the tokens counted in
its window are compared with what the log says was charged, and that with the usage clients were
told. After a rest nothing may be open. Prints what was looked at, then one JSON object on the last
line, and exits with 1 when something leaked, hung, was lost or was counted wrong.
"""

import argparse
import asyncio
import json
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from random import Random

from engines.models.catalog import default_model_dir
from gateway.tenancy.keys import KeyBook
from gateway.tenancy.schema import metadata
from ingest.database import Database, sqlite_url
from ingest.synth.api import CaseRequest, EstimateCounter, synthesize
from tests.bench.soaking.course import Plan, Soak
from tests.bench.soaking.house import House, running_house
from tests.bench.soaking.ledger import Ledger
from tests.bench.soaking.load import Client, Texts
from tests.bench.soaking.report import Report

LONG_CHARS = 430_000
"""About 98,000 tokens of SmolLM2."""

SHORT_CHARS = 600


def soak(plan: Plan, folder: Path) -> Report:
    """Run one in a folder that is empty. Blocks; no event loop may run in this thread."""
    with running_house(
        folder,
        default_model_dir(),
        faults=plan.faults,
        seed=plan.seed,
        with_worker=plan.with_worker,
    ) as house:
        return asyncio.run(_soaked(plan, house))


async def _soaked(plan: Plan, house: House) -> Report:
    client = Client(
        port=house.port,
        rng=Random(plan.seed),
        ledger=Ledger(),
        texts=await asyncio.to_thread(_texts, plan.seed),
        disconnects=plan.disconnects,
    )
    url = sqlite_url(house.folder / "data" / "metadata.db")
    database = await Database.connect(url, metadata)
    try:
        book = KeyBook(database, clock=time.time)
        return await Soak(house=house, plan=plan, book=book, client=client).run()
    finally:
        await database.aclose()


def _texts(seed: int) -> Texts:
    case = synthesize(CaseRequest(seed=seed, num_tokens=150_000), EstimateCounter())
    text = "\n\n".join(one.text for one in case.documents)
    assert len(text) >= LONG_CHARS
    starts = range(0, 40 * SHORT_CHARS, SHORT_CHARS)
    return Texts(
        short=[text[start : start + SHORT_CHARS // (1 + start % 4)] for start in starts],
        long=text[:LONG_CHARS],
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    usual = Plan()
    parser.add_argument("--minutes", type=float, default=usual.minutes)
    parser.add_argument("--rate", type=float, default=usual.rate, help="requests per second")
    parser.add_argument("--disconnects", type=float, default=usual.disconnects)
    parser.add_argument("--faults", type=float, default=usual.faults)
    parser.add_argument("--seed", type=int, default=usual.seed)
    parser.add_argument("--folder", type=Path, help="a new one, for logs and data to be kept")
    args = vars(parser.parse_args())
    kept: Path | None = args.pop("folder")
    with tempfile.TemporaryDirectory() as passing:
        folder = kept or Path(passing)
        folder.mkdir(parents=True, exist_ok=True)
        report = soak(Plan(**args), folder)
    print(json.dumps(asdict(report)))
    return 0 if report.is_clean else 1


if __name__ == "__main__":
    raise SystemExit(main())
