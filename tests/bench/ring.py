"""`make bench NAME=ring`: prefill and decode of the exact engine beside its peers.

SmolLM2 in bfloat16 on all cores, the same ids for everybody, interleaved rounds; a figure is the
best of its rounds. Peers: transformers with `sdpa`, and llama.cpp on the same GGUF if
`make bench-peers` has installed it. SmolLM2 was trained for 8,192 tokens: for longer prompts all
get its folder with a larger window in config.json, which changes nothing in the arithmetic.
The last line is one JSON object.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer
from tqdm import tqdm

from engines.api import FinishEvent, GenerateRequest, Sampling, TokenEvent
from engines.config import EngineConfig
from engines.gang.supervisor import Supervisor
from engines.models.catalog import default_gguf, default_model_dir
from engines.wiring import build_supervisor
from tests.bench.peak import peak_vs_model

LENGTHS = (2048, 8192, 16384)
NUM_DECODED = 48
MATCHED_PROMPTS, MATCHED_PROMPT_TOKENS, MATCHED_TOKENS = 8, 512, 32
PEERS_PYTHON = Path(os.environ.get("RINGWAY_BENCH_PEERS", ".venv-peers")) / "bin/python"
RIVALS = Path(__file__).parent / "rivals"
CORES = os.cpu_count() or 1


@dataclass(frozen=True, slots=True)
class Rates:
    """Tokens per second."""

    prefill: float
    decode: float

    def best(self, other: "Rates | None") -> "Rates":
        if other is None:
            return self
        return Rates(max(self.prefill, other.prefill), max(self.decode, other.decode))


Runner = Callable[[Sequence[int]], Rates]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS)
    parser.add_argument("--no-peak", action="store_true", help="leave the memory check out")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model_dir = long_model(Path(folder))
        rates = measure(runners(model_dir, Path(folder)), args.lengths, args.rounds)
        matched = bf16_token_match(model_dir)
    table(rates, args.lengths)
    peak = None if args.no_peak else peak_vs_model(max(args.lengths))
    print(json.dumps(summary(rates, matched, peak)))


# What is measured.


def runners(model_dir: Path, folder: Path) -> dict[str, Runner]:
    found: dict[str, Runner] = {
        f"ringway, {ranks} ranks": ours(engine_config(model_dir, ranks=ranks)) for ranks in (2, 1)
    }
    found["transformers sdpa"] = rival([sys.executable, RIVALS / "dense.py", model_dir], folder)
    if PEERS_PYTHON.exists():
        command = [PEERS_PYTHON, RIVALS / "llamacpp.py", default_gguf()]
        found["llama.cpp"] = rival(command, folder)
    else:
        print(f"llama.cpp is left out: {PEERS_PYTHON} is missing; run make bench-peers")
    return found


def engine_config(model_dir: Path, *, ranks: int, dtype: str = "bfloat16") -> EngineConfig:
    return EngineConfig(
        model_dir=model_dir,
        model_name="smollm2",
        ranks=ranks,
        threads_per_rank=max(1, CORES // ranks),
        dtype=dtype,
    )


def ours(config: EngineConfig) -> Runner:
    def run(ids: Sequence[int]) -> Rates:
        return asyncio.run(one_request(config, ids))

    return run


async def one_request(config: EngineConfig, ids: Sequence[int]) -> Rates:
    supervisor = build_supervisor(config)
    running = asyncio.create_task(supervisor.run())
    try:
        await supervisor.wait_ready()
        await answer(supervisor, ids[:64], 4)  # the first forward pass of a process is slower
        finish, _ = await answer(supervisor, ids, NUM_DECODED + 1)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    return Rates(len(ids) / finish.prefill_s, NUM_DECODED / finish.decode_s)


async def answer(
    supervisor: Supervisor, ids: Sequence[int], num_tokens: int
) -> tuple[FinishEvent, list[int]]:
    tokens: list[int] = []
    request = GenerateRequest(
        request_id="bench",
        prompt_ids=array("i", ids),
        max_new_tokens=num_tokens,
        sampling=Sampling(temperature=0.0),
    )
    async for event in supervisor.generate(request):
        if isinstance(event, TokenEvent):
            tokens.append(event.id)
        elif isinstance(event, FinishEvent):
            return event, tokens
    raise AssertionError("an answer ended without a finish")


def rival(command: Sequence[object], folder: Path) -> Runner:
    def run(ids: Sequence[int]) -> Rates:
        ids_file = folder / "ids.json"
        ids_file.write_text(json.dumps(list(ids)))
        out = subprocess.run(
            [*map(str, command), str(CORES), str(NUM_DECODED), str(ids_file)],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        took = json.loads(out.splitlines()[-1])
        return Rates(len(ids) / took["prefill_s"], NUM_DECODED / took["decode_s"])

    return run


def measure(
    found: dict[str, Runner], lengths: Sequence[int], rounds: int
) -> dict[str, dict[int, Rates]]:
    ids = long_ids(max(lengths))
    rates: dict[str, dict[int, Rates]] = {name: {} for name in found}
    plan = [(n, name) for n in lengths for _ in range(rounds) for name in found]
    for n, name in tqdm(plan, desc="runs", smoothing=0):
        new = found[name](ids[:n])
        rates[name][n] = new.best(rates[name].get(n))
        tqdm.write(
            f"{n:6,} tokens  {name:18}  prefill {new.prefill:7.1f}/s  decode {new.decode:5.1f}/s"
        )
    return rates


def bf16_token_match(model_dir: Path) -> float:
    """The share of greedy tokens that bfloat16 and float32 have in common, place by place."""
    ids = long_ids(MATCHED_PROMPTS * MATCHED_PROMPT_TOKENS)
    prompts = [
        ids[start : start + MATCHED_PROMPT_TOKENS]
        for start in range(0, len(ids), MATCHED_PROMPT_TOKENS)
    ]
    texts = [
        asyncio.run(greedy(engine_config(model_dir, ranks=2, dtype=dtype), prompts))
        for dtype in ("bfloat16", "float32")
    ]
    return float(np.mean(np.array(texts[0]) == np.array(texts[1])))


async def greedy(config: EngineConfig, prompts: Sequence[Sequence[int]]) -> list[list[int]]:
    supervisor = build_supervisor(config)
    running = asyncio.create_task(supervisor.run())
    try:
        await supervisor.wait_ready()
        return [(await answer(supervisor, p, MATCHED_TOKENS))[1] for p in prompts]
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


# What it is measured on.


def long_model(folder: Path) -> Path:
    model_dir = folder / "smollm2-long"
    model_dir.mkdir()
    for path in default_model_dir().iterdir():
        if path.name == "config.json":
            config = json.loads(path.read_text())
            config["max_position_embeddings"] = 2 * max(LENGTHS)
            (model_dir / path.name).write_text(json.dumps(config))
        else:
            (model_dir / path.name).symlink_to(path)
    return model_dir


def long_ids(num_tokens: int) -> list[int]:
    data = Path(os.environ.get("RINGWAY_TEST_DATA", "../shared/data"))
    corpora = sorted((data / "retrieval/chunking").glob("*.md"))
    text = "\n\n".join(path.read_text() for path in corpora[:3])
    tokenizer = Tokenizer.from_file(str(default_model_dir() / "tokenizer.json"))
    ids: list[int] = tokenizer.encode(text[: 12 * num_tokens], add_special_tokens=False).ids
    if len(ids) < num_tokens:
        raise SystemExit(f"the text has {len(ids)} tokens; {num_tokens} are needed")
    return ids[:num_tokens]


# What is told.


def table(rates: dict[str, dict[int, Rates]], lengths: Sequence[int]) -> None:
    print(f"\n{'tokens/s':20}" + "".join(f"{n:>12,} in {n:>8,} out" for n in lengths))
    for name, of in rates.items():
        cells = "".join(f"{of[n].prefill:15.1f} {of[n].decode:12.1f}" for n in lengths)
        print(f"{name:20}{cells}")


def fitted(rates: dict[int, Rates]) -> tuple[float, float]:
    """k in seconds and c of t = k(n + c n^2), least squares of t / n."""
    n = np.array(sorted(rates), dtype=float)
    per_token = np.array([1 / rates[int(length)].prefill for length in n])
    slope, k = np.polyfit(n, per_token, 1)
    return float(k), float(slope / k)


def summary(
    rates: dict[str, dict[int, Rates]], matched: float, peak: float | None
) -> dict[str, float | None]:
    two, one = rates["ringway, 2 ranks"], rates["ringway, 1 ranks"]

    def against(peer: dict[int, Rates], n: int, what: str) -> float | None:
        if n not in peer or n not in two:
            return None
        return round(float(getattr(two[n], what) / getattr(peer[n], what)), 3)

    llamacpp = rates.get("llama.cpp", {})
    k, c = fitted(two)
    return {
        "prefill_2v1_8k": against(one, 8192, "prefill"),
        "prefill_vs_llamacpp_8k": against(llamacpp, 8192, "prefill"),
        "prefill_vs_llamacpp_16k": against(llamacpp, 16384, "prefill"),
        "decode_vs_llamacpp_8k": against(llamacpp, 8192, "decode"),
        "decode_vs_llamacpp_16k": against(llamacpp, 16384, "decode"),
        "bf16_token_match": round(matched, 3),
        "peak_vs_model_16k": peak if peak is None else round(peak, 3),
        "fit_k_s": k,
        "fit_c": c,
    }


if __name__ == "__main__":
    main()
