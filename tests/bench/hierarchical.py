"""`make bench NAME=hierarchical`: the cheap route beside the exact one, on facts hidden in text.

SmolLM2 in bfloat16 on two ranks, real text, greedy answers. `full` is measured where the model's
window lets it; its cost beyond is fitted to its own times. Small by default; the whole table is

    make bench NAME=hierarchical ARGS="--samples 40 --beyond-samples 20"

The last line is one JSON object.
"""

import argparse
import asyncio
import json
import math
import os
import statistics
import time
from array import array
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

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
from tests.bench.needles import Haystack, Sample, Task

WITHIN = (2048, 4096, 8192)
BEYOND = (16384, 32768, 65536, 131072)
FITTED = (1024, 2048, 4096, 8192)
MAX_NEW, LIKELIEST = 24, 20
CORES = os.cpu_count() or 1


@dataclass(slots=True)
class Score:
    """Of one task at one length by one route."""

    right: int = 0
    found: int = 0
    total: int = 0
    work: list[float] = field(default_factory=list)
    recall: list[float] = field(default_factory=list)

    @property
    def share(self) -> float:
        return self.right / self.total if self.total else float("nan")


@dataclass(frozen=True, slots=True)
class Answer:
    text: str
    ids: list[int]
    first: tuple[TokenLogprob, ...]
    finish: FinishEvent
    attended: AttendedEvent | None


Scores = dict[tuple[Attention, Task, int], Score]


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


async def accuracy(bench: Bench, args: argparse.Namespace, scores: Scores) -> tuple[float, float]:
    """Within the window, both routes; returns KL of the first token and share of equal tokens."""
    divergences: list[float] = []
    matched: list[float] = []
    for length in args.within:
        for task in Task:
            for seed in range(args.samples):
                prompt = bench.haystack.sample(task, length - MAX_NEW, seed)
                ours = await scored(bench, prompt, Attention.HIERARCHICAL, task, length, scores)
                full = await scored(bench, prompt, Attention.FULL, task, length, scores)
                divergences.append(divergence(full.first, ours.first))
                matched.append(equal_tokens(full.ids, ours.ids))
            tell(scores, task, length)
    return mean(divergences), mean(matched)


async def beyond(bench: Bench, args: argparse.Namespace, scores: Scores) -> None:
    for length in args.beyond:
        for seed in range(args.beyond_samples):
            prompt = bench.haystack.sample(Task.SINGLE, length - MAX_NEW, seed)
            await scored(bench, prompt, Attention.HIERARCHICAL, Task.SINGLE, length, scores)
        tell(scores, Task.SINGLE, length)


async def scored(
    bench: Bench, prompt: Sample, attention: Attention, task: Task, length: int, scores: Scores
) -> Answer:
    answer = await bench.ask(prompt, attention)
    score = scores.setdefault((attention, task, length), Score())
    score.right += prompt.wanted in answer.text
    score.total += 1
    score.work.append(bench.work(prompt, answer))
    if answer.attended is not None:
        score.recall.append(answer.attended.recall)
        score.found += any(s.start <= prompt.told_at < s.stop for s in answer.attended.spans)
        if prompt.wanted not in answer.text:
            print(f"{length:>7} {task:<9} wanted {prompt.wanted}, said {answer.text!r}")
    return answer


def divergence(full: Sequence[TokenLogprob], ours: Sequence[TokenLogprob]) -> float:
    """KL of the first token, over the likeliest of `full` and the rest taken together."""
    given = {one.id: math.exp(one.logprob) for one in ours}
    least = min(given.values(), default=1e-6)
    total = 0.0
    for one in full:
        p = math.exp(one.logprob)
        total += p * math.log(p / max(given.get(one.id, least), 1e-9))
    rest_p = max(1e-9, 1.0 - sum(math.exp(one.logprob) for one in full))
    rest_q = max(1e-9, 1.0 - sum(given.get(one.id, 0.0) for one in full))
    return total + rest_p * math.log(rest_p / rest_q)


def equal_tokens(full: Sequence[int], ours: Sequence[int]) -> float:
    """The share of the exact answer's tokens up to the first that differs."""
    equal = next((i for i, (a, b) in enumerate(zip(full, ours, strict=False)) if a != b), None)
    if equal is None:
        equal = min(len(full), len(ours))
    return equal / len(full) if full else 1.0


def tell(scores: Scores, task: Task, length: int) -> None:
    parts = [f"{length:>7} {task:<9}"]
    for attention in Attention:
        score = scores.get((attention, task, length))
        if score is not None:
            parts.append(f"{attention} {score.right}/{score.total}")
            if score.recall:
                parts.append(f"found {score.found}")
                parts.append(f"work {mean(score.work):.3f} recall {mean(score.recall):.3f}")
    print("  ".join(parts), flush=True)


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


def mean(values: Sequence[float]) -> float:
    return statistics.fmean(values) if values else float("nan")


def over_lengths(scores: Scores, attention: Attention, task: Task, lengths: Sequence[int]) -> float:
    found = [scores[attention, task, n].share for n in lengths if (attention, task, n) in scores]
    return mean(found)


def summary(scores: Scores, args: argparse.Namespace) -> dict[str, float]:
    def ratio(task: Task) -> float:
        full = over_lengths(scores, Attention.FULL, task, args.within)
        ours = over_lengths(scores, Attention.HIERARCHICAL, task, args.within)
        return ours / full if full else float("nan")

    at_most = over_lengths(scores, Attention.HIERARCHICAL, Task.SINGLE, args.within[-1:])
    further = over_lengths(scores, Attention.HIERARCHICAL, Task.SINGLE, args.beyond)
    # Work of all lengths together: that of `full` grows with the square of the length.
    pairs = [
        (work * length**2, length**2)
        for (attention, _, length), score in scores.items()
        if attention is Attention.HIERARCHICAL and length in args.within
        for work in score.work
    ]
    return {
        "single_vs_full": ratio(Task.SINGLE),
        "multikey_vs_full": ratio(Task.MULTIKEY),
        "twohop_vs_full": ratio(Task.TWO_HOP),
        "beyond_window_vs_8k": further / at_most if at_most else float("nan"),
        "attention_work_vs_full": sum(a for a, _ in pairs) / max(1.0, sum(b for _, b in pairs)),
    }


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
    scores: Scores = {}
    result: dict[str, float] = {}
    longest = max([*args.within, *args.beyond, *args.timed, *args.fitted])
    async with running(config) as engine:
        bench = Bench(engine, config, longest)
        warm_up = Sample(array("i", [1] * 300), 280, "")
        for attention in Attention:
            await bench.ask(warm_up, attention, new=2)
        timings = await speed(bench, args) if args.timed else {}
        kl, match = await accuracy(bench, args, scores)
        await beyond(bench, args, scores)
    result.update(summary(scores, args))
    result.update(timings)
    return result | {"kl": kl, "token_match": match}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=2, help="per task and length in the window")
    parser.add_argument("--beyond-samples", type=int, default=2)
    parser.add_argument("--top-k", type=int, default=HierarchicalConfig().top_k)
    parser.add_argument("--within", type=int, nargs="*", default=WITHIN)
    parser.add_argument("--beyond", type=int, nargs="*", default=BEYOND)
    parser.add_argument("--timed", type=int, nargs="*", default=(16384, 65536, 131072))
    parser.add_argument("--fitted", type=int, nargs="*", default=FITTED)
    result = asyncio.run(measure(parser.parse_args()))
    print(json.dumps({name: round(value, 4) for name, value in result.items()}))


if __name__ == "__main__":
    main()
