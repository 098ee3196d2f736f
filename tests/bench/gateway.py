"""Ringway's gateway beside LiteLLM's proxy, SGLang's router and Portkey's, over one mock upstream.

    python -m tests.bench.gateway [--rounds 3] [--seconds 4] [--peers .venv-peers]

One worker each, all gateways on one core and the mock and the load on another; rounds are
interleaved and medians told. The prompts have about 98,000 tokens, counted exactly here, checked
against the limit by LiteLLM, and not counted by the others: new in every word group, or one
document with a new question. Peers that are not installed (`make bench-peers`) give null. The last
four figures are those of tests.bench.long_prompts. Prints one JSON object on the last line.
"""

import argparse
import asyncio
import json
import os
import re
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

from engines.models.catalog import default_model_dir
from gateway.prompt.model_text import ModelText
from gateway.upstreams.about import folder_tokenizer
from ingest.synth.api import CaseRequest, EstimateCounter, synthesize
from tests.bench import long_prompts
from tests.bench.load import Body, Load, Target, drive, numbered
from tests.bench.rivals.gateways import (
    Bench,
    await_health,
    free_port,
    litellm,
    portkey,
    process,
    ringway,
    sglang,
)

PROMPT_TOKENS = 98_000
MARK = b"@@@@@@@@"
MARK_EVERY = 400
WARMUP_S = 4.0

Figures = dict[tuple[str, str], list[Load]]


def main() -> None:
    args = arguments()
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder), args.peers) as targets:
        loads = asyncio.run(rounds(targets, args.rounds, args.seconds))
    figures: dict[str, float | None] = {**compared(loads), **long_prompts.measure(3, 7)}
    print(json.dumps(figures))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0)
    default = os.environ.get("RINGWAY_BENCH_PEERS", ".venv-peers")
    parser.add_argument("--peers", type=Path, default=Path(default))
    return parser.parse_args()


@contextmanager
def serving(folder: Path, peers: Path) -> Iterator[list[Target]]:
    """The mock itself, and every gateway that is installed."""
    cores = sorted(os.sched_getaffinity(0))
    core, own = (cores[0], cores[1]) if len(cores) > 1 else (None, None)
    if own is not None:
        os.sched_setaffinity(0, {own})
    port = free_port()
    bench = Bench(
        folder=folder, upstream=f"http://127.0.0.1:{port}", peers=peers.resolve(), core=core
    )
    mock = Path(__file__).parent / "rivals" / "mock_upstream.py"
    beside = Bench(folder=folder, upstream="", peers=peers, core=own)
    with ExitStack() as stack:
        stack.enter_context(process([sys.executable, str(mock), str(port)], beside, {}))
        await_health(port, "/health")
        targets: list[Target | None] = [Target(name="direct", port=port)]
        targets.append(stack.enter_context(ringway(bench, default_model_dir())))
        targets += [stack.enter_context(one(bench)) for one in (litellm, sglang, portkey)]
        yield [one for one in targets if one is not None]
    os.sched_setaffinity(0, cores)


async def rounds(targets: list[Target], num_rounds: int, seconds: float) -> Figures:
    bodies = await asyncio.to_thread(made_bodies)
    loads: Figures = defaultdict(list)
    for target in targets:
        await drive(target, bodies["1kb"], concurrency=2, seconds=WARMUP_S)
        await drive(target, bodies["98k_repeat"], concurrency=2, seconds=WARMUP_S / 2)
    for number in range(num_rounds):
        for scenario, body in bodies.items():
            concurrency = 1 if scenario == "1kb" else 4
            for target in targets:
                load = await drive(target, body, concurrency=concurrency, seconds=seconds)
                loads[target.name, scenario].append(load)
                print(
                    f"round {number} {scenario} {target.name}: {load.rps:.1f} requests/s, "
                    f"p50 {load.p50_ms:.2f} ms, p99 {load.p99_ms:.2f} ms "
                    f"(load {os.getloadavg()[0]:.1f})",
                    flush=True,
                )
    return loads


def made_bodies() -> Mapping[str, Body]:
    case = synthesize(CaseRequest(seed=11, num_tokens=150_000), EstimateCounter())
    text = case.documents[0].text
    ids = ModelText.build(folder_tokenizer(default_model_dir())).encoder.encode(text).ids
    text = text[: len(text) * PROMPT_TOKENS // len(ids)]
    pieces = re.findall(rf"[\s\S]{{1,{MARK_EVERY}}}(?:\s|$)", text)
    # The marks are tokens too: so many characters less.
    everywhere = f"{MARK.decode()} ".join(pieces)[: len(text)]
    asked = f"\n\nWhat does the record {MARK.decode()} say?"
    return {
        "98k_new": numbered(body(everywhere + asked), MARK),
        "98k_repeat": numbered(body(text + asked), MARK),
        "1kb": numbered(body(text[:900] + asked), MARK),
    }


def body(text: str) -> bytes:
    message = {"role": "user", "content": text}
    return json.dumps({"model": "mock", "messages": [message], "max_tokens": 16}).encode()


def compared(loads: Figures) -> dict[str, float | None]:
    def rps(name: str, scenario: str) -> float | None:
        found = loads.get((name, scenario))
        return median(load.rps for load in found) if found else None

    def added_ms(name: str) -> float | None:
        found, direct = loads.get((name, "1kb")), loads["direct", "1kb"]
        if not found:
            return None
        return median(one.p50_ms - base.p50_ms for one, base in zip(found, direct, strict=True))

    return {
        "rps_98k_new_vs_litellm": ratio(rps("ringway", "98k_new"), rps("litellm", "98k_new")),
        "rps_98k_repeat_vs_litellm": ratio(
            rps("ringway", "98k_repeat"), rps("litellm", "98k_repeat")
        ),
        "rps_98k_repeat_vs_sglang": ratio(
            rps("ringway", "98k_repeat"), rps("sglang", "98k_repeat")
        ),
        "added_p50_1kb_vs_litellm": ratio(added_ms("ringway"), added_ms("litellm")),
    }


def ratio(ours: float | None, theirs: float | None) -> float | None:
    return round(ours / theirs, 3) if ours is not None and theirs else None


if __name__ == "__main__":
    main()
