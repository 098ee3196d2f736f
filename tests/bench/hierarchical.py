"""`make bench NAME=hierarchical`: the cheap route beside the exact one, on facts hidden in text.

SmolLM2 in bfloat16 on two ranks, real text, greedy answers. `full` is measured where the model's
window lets it; its cost beyond is fitted to its own times. 40 prompts per task in the window, 20
beyond it: about 45 minutes on two quiet cores. Speed is measured first, so that a run that is only
about accuracy can leave it out and share the machine:

    make bench NAME=hierarchical ARGS="--timed --fitted --journal answers.jsonl"

An interrupted run goes on from its journal. The last line is one JSON object.
"""

import argparse
import asyncio
import json
import math
import os
import time
from array import array
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from engines.api import (
    AttendedEvent,
    Attention,
    Engine,
    FinishEvent,
    GenerateRequest,
    Sampling,
    TokenEvent,
    TokenLogprob,
)
from engines.chunks import num_within, plan_chunks
from engines.config import EngineConfig, HierarchicalConfig
from engines.local.hierarchical.voters import voting_layers
from engines.models.catalog import default_model_dir
from engines.models.folder import read_folder
from engines.wiring import build_supervisor
from tests.bench.compared import Journal, Pair, Summary, divergence, equal_tokens
from tests.bench.needles import EDITION, Haystack, Sample, Task

WITHIN = (2048, 4096, 8192)
BEYOND = (16384, 32768, 65536, 131072)
FITTED = (1024, 2048, 4096, 8192)
MAX_NEW, LIKELIEST = 32, 20
CORES = os.cpu_count() or 1


@dataclass(frozen=True, slots=True)
class Answer:
    text: str
    ids: list[int]
    first: tuple[TokenLogprob, ...]
    finish: FinishEvent
    attended: AttendedEvent | None


class Bench:
    def __init__(self, engine: Engine, config: EngineConfig, longest: int) -> None:
        folder = default_model_dir()
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._stop_ids = read_folder(folder).tokenizer.stop_ids
        self._engine = engine
        self._config = config
        self.haystack = Haystack(self._tokenizer, longest)
        self.num_layers, self.voting = layers_of(config)

    async def ask(
        self, prompt: Sample, attention: Attention, *, key: str = "bench", new: int = MAX_NEW
    ) -> Answer:
        request = GenerateRequest(
            request_id="bench",
            prompt_ids=prompt.prompt_ids,
            max_new_tokens=new,
            attention=attention,
            question_start=prompt.question_start,
            sampling=Sampling(temperature=0.0, top_logprobs=LIKELIEST),
            stop_ids=self._stop_ids,
            grammar=prompt.grammar,
            cache_key=key,
        )
        ids: list[int] = []
        first: tuple[TokenLogprob, ...] = ()
        attended = None
        async for event in self._engine.generate(request):
            match event:
                case TokenEvent():
                    first = first or event.top_logprobs
                    ids.append(event.id)
                case AttendedEvent():
                    attended = event
                case FinishEvent():
                    return Answer(self._tokenizer.decode(ids), ids, first, event, attended)
        raise AssertionError("an answer without a finish")

    def work(self, prompt: Sample, answer: Answer) -> float:
        """Pairs of query and key over all layers, ours by those of `full`; a score without its
        value counts half."""
        num_tokens = len(prompt.prompt_ids)
        full = self.num_layers * num_tokens**2 / 2
        if answer.attended is None:
            return 1.0
        plan = plan_chunks(num_tokens, prompt.question_start, (), self._config.hierarchical)
        reads = [stop - start for start, stop in map(plan.read, range(len(plan.chunks)))]
        asked = num_tokens - plan.question_start
        encoded = sum(read**2 / 2 + read * plan.anchor_stop for read in reads) * self.voting[-1]
        scored = len(self.voting) * asked * sum(reads) / 2
        shortlist = plan.shortlist((s.start, s.stop) for s in answer.attended.spans)
        again = self.num_layers * num_within(shortlist) ** 2 / 2
        return (encoded + scored + again) / full


def layers_of(config: EngineConfig) -> tuple[int, tuple[int, ...]]:
    facts = json.loads((config.model_dir / "config.json").read_text())
    shape = facts["model_type"], facts["num_hidden_layers"], facts["hidden_size"]
    return shape[1], voting_layers(config.hierarchical.voting_layers, shape, ())


# Accuracy.


@dataclass(frozen=True, slots=True)
class Planned:
    task: Task
    length: int
    number: int
    is_within: bool

    @property
    def key(self) -> tuple[Task, int, int]:
        return self.task, self.length, self.number


def planned(args: argparse.Namespace) -> Iterator[Planned]:
    """Lengths take turns, so that a run that is cut short has seen them all."""
    for number in range(args.samples if args.within else 0):
        for task in args.tasks:
            yield Planned(task, args.within[number % len(args.within)], number, True)
    if Task.SINGLE in args.tasks:
        for number in range(args.beyond_samples if args.beyond else 0):
            length = args.beyond[number % len(args.beyond)]
            yield Planned(Task.SINGLE, length, number, False)


async def accuracy(bench: Bench, args: argparse.Namespace, journal: Journal) -> list[Pair]:
    plan = list(planned(args))
    left = [one for one in plan if one.key not in journal.pairs]
    started = time.monotonic()
    for done, one in enumerate(left, 1):
        pair = await compared(bench, one)
        journal.add(pair)
        rest_s = (time.monotonic() - started) / done * (len(left) - done)
        print(
            f"{len(plan) - len(left) + done}/{len(plan)} {one.length:>6} {one.task:<9}"
            f" full {'-' if pair.full_right is None else int(pair.full_right)}"
            f" ours {int(pair.right)} found {int(pair.found)}, {rest_s / 60:.0f} min to go",
            flush=True,
        )
    return [journal.pairs[one.key] for one in plan]


async def compared(bench: Bench, one: Planned) -> Pair:
    prompt = bench.haystack.sample(one.task, one.length - MAX_NEW, one.number)
    ours = await bench.ask(prompt, Attention.HIERARCHICAL)
    full = await bench.ask(prompt, Attention.FULL) if one.is_within else None
    assert ours.attended is not None
    if not prompt.is_answered_by(ours.text):
        print(f"wanted {' and '.join(prompt.wanted)}; said {ours.text!r}")
    spans = ours.attended.spans
    comparable = full if prompt.grammar is None else None
    return Pair(
        task=one.task,
        length=one.length,
        number=one.number,
        right=prompt.is_answered_by(ours.text),
        found=all(any(s.start <= at < s.stop for s in spans) for at in prompt.told_at),
        work=bench.work(prompt, ours),
        recall=ours.attended.recall,
        full_right=None if full is None else prompt.is_answered_by(full.text),
        kl=None if comparable is None else divergence(comparable.first, ours.first),
        match=None if comparable is None else equal_tokens(comparable.ids, ours.ids),
    )


# Speed.


async def prefill_rate(bench: Bench, length: int, attention: Attention) -> float:
    """Tokens per second of a prompt that nobody has read before."""
    prompt = bench.haystack.sample(Task.SINGLE, length - MAX_NEW, seed=1)
    key = f"fresh {attention} {length} {time.monotonic()}"
    answer = await bench.ask(prompt, attention, key=key, new=1)
    assert answer.finish.cached_tokens == 0
    rate = len(prompt.prompt_ids) / answer.finish.prefill_s
    print(f"{length:>7} {attention:<12} {rate:8.0f} tokens/s", flush=True)
    return rate


async def speed(bench: Bench, args: argparse.Namespace) -> dict[str, float]:
    ours = {n: await prefill_rate(bench, n, Attention.HIERARCHICAL) for n in args.timed}
    full = {n: n / await prefill_rate(bench, n, Attention.FULL) for n in args.fitted}
    lengths = np.array(list(full))
    # Relative errors count alike, or the longest alone would decide.
    terms = (
        np.stack([lengths, lengths.astype(float) ** 2], 1) / np.array(list(full.values()))[:, None]
    )
    (linear, square), *_ = np.linalg.lstsq(terms, np.ones(len(lengths)), rcond=None)
    at = 65536 if 65536 in ours else max(ours)
    fitted_s = linear * at + square * at**2
    print(f"full at {at}, fitted: {fitted_s:.0f} s; hierarchical: {at / ours[at]:.0f} s")
    return {
        "linear_128k_vs_16k": ours[max(ours)] / ours[min(ours)],
        "full_fit_vs_ours_64k": fitted_s * ours[at] / at,
    }


# All of it.


@asynccontextmanager
async def running(config: EngineConfig) -> AsyncIterator[Engine]:
    supervisor = build_supervisor(config)
    task = asyncio.create_task(supervisor.run())
    try:
        await supervisor.wait_ready()
        yield supervisor
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def measure(args: argparse.Namespace) -> dict[str, float]:
    config = EngineConfig(
        model_dir=default_model_dir(),
        model_name="smollm2",
        threads_per_rank=max(1, CORES // 2),
        dtype="bfloat16",
        kv_budget_bytes=1 << 30,
        hierarchical=HierarchicalConfig(top_k=args.top_k),
    )
    journal = Journal(args.journal, f"{EDITION} {config.dtype} {config.hierarchical}")
    longest = max([0, *args.within, *args.beyond, *args.timed, *args.fitted])
    async with running(config) as engine:
        bench = Bench(engine, config, longest)
        warm_up = Sample(array("i", [1] * 300), 280)
        for attention in Attention:
            await bench.ask(warm_up, attention, new=2)
        timings = await speed(bench, args) if args.timed and args.fitted else {}
        summary = Summary(await accuracy(bench, args, journal))
    print("\n".join(summary.table()))
    return {
        "single_vs_full": summary.ratio(Task.SINGLE),
        "multikey_vs_full": summary.ratio(Task.MULTIKEY),
        "twohop_vs_full": summary.ratio(Task.TWO_HOP),
        "beyond_window_vs_8k": summary.beyond(max(args.within, default=0)),
        "attention_work_vs_full": summary.work,
        **timings,
        "kl": summary.kl,
        "token_match": summary.match,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=40, help="per task, over all lengths")
    parser.add_argument("--beyond-samples", type=int, default=20, help="over all lengths")
    parser.add_argument("--top-k", type=int, default=HierarchicalConfig().top_k)
    parser.add_argument("--tasks", type=Task, nargs="*", default=tuple(Task))
    parser.add_argument("--within", type=int, nargs="*", default=WITHIN)
    parser.add_argument("--beyond", type=int, nargs="*", default=BEYOND)
    parser.add_argument("--timed", type=int, nargs="*", default=(16384, 65536, 131072))
    parser.add_argument("--fitted", type=int, nargs="*", default=FITTED)
    parser.add_argument("--journal", type=Path, help="finished prompts, to go on from")
    result = asyncio.run(measure(parser.parse_args()))
    # What was not measured is null: JSON has no NaN.
    print(json.dumps({n: None if math.isnan(v) else round(v, 4) for n, v in result.items()}))


if __name__ == "__main__":
    main()
