"""`ringway eval`: asks a server about facts hidden in long texts; knows arguments and the bar."""

import argparse
import asyncio
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from gateway.cli.main import Refusal
from gateway.cli.plan import num_tokens
from gateway.cli.preflight import sentence
from gateway.evaluation.client import CountRefused, EvalClient, first_model
from gateway.evaluation.haystack import Haystack, read_haystack, synthetic_haystack
from gateway.evaluation.journal import Journal, Record
from gateway.evaluation.needles import EDITION, Task
from gateway.evaluation.plan import (
    BASELINES,
    ROUTES,
    Arm,
    EvalPlan,
    EvaluationError,
    SampleKey,
)
from gateway.evaluation.prompts import PromptBuilder
from gateway.evaluation.report import report
from gateway.evaluation.results import REPORT_NAME, RESULT_NAME, Result, summarize
from gateway.evaluation.runner import Runner
from gateway.evaluation.tables import tokens

N = TypeVar("N", bound=str)

DEFAULT_URL = "http://127.0.0.1:8080/v1"
"""Of `ringway up`."""
LEAST_SYNTH_TOKENS = 4096
TRIES, FALLBACK_TRIES = 6, 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--base-url",
        default=os.environ.get("RINGWAY_BASE_URL", DEFAULT_URL),
        help="of any OpenAI-compatible server (default: RINGWAY_BASE_URL, or `ringway up`'s)",
    )
    parser.add_argument("--model", help="(default: the first one that the server lists)")
    parser.add_argument("--api-key", default="none", help="sent as the bearer token")
    parser.add_argument("--lengths", default="2K,8K", help="prompt tokens, such as 2K,8K,32K")
    parser.add_argument("--depths", type=int, default=5, help="places from start to end")
    parser.add_argument(
        "--samples", type=int, default=4, metavar="N", help="per task, length and depth"
    )
    parser.add_argument("--tasks", default=",".join(Task), help="(default: %(default)s)")
    parser.add_argument(
        "--routes",
        default="full,hierarchical,retrieval",
        help="of full, hierarchical, retrieval, auto, and plain for servers that are not Ringway",
    )
    parser.add_argument("--baselines", default="", help="truncate: the prompt without its middle")
    parser.add_argument(
        "--read-budget",
        metavar="TOKENS",
        help="what truncate may read (default: as much as retrieval read of the same sample)",
    )
    parser.add_argument("--haystack", type=Path, help="folder of .txt and .md (default: synth)")
    parser.add_argument("--seed", type=int, default=0, help="the same seed, the same prompts")
    parser.add_argument("--max-tokens", type=int, default=96, help="of an answer")
    parser.add_argument(
        "--chunk-tokens", type=int, default=256, help="between borders that facts straddle"
    )
    parser.add_argument("--concurrency", type=int, default=1, help="samples at one time")
    parser.add_argument("--out", type=Path, required=True, help="folder for samples and report")
    parser.add_argument("--resume", action="store_true", help="go on with what --out holds")


def run(args: argparse.Namespace) -> int:
    """0 when every sample was answered or refused, 1 when some failed, 130 when stopped."""
    try:
        if args.concurrency < 1:
            raise ValueError("--concurrency must be at least 1")
        haystack = haystack_of(args)
        if args.model is None:
            args.model = asyncio.run(first_model(args.base_url, args.api_key))
        plan = plan_of(args, haystack)
        with Journal.opened(args.out, plan, resume=args.resume) as journal:
            return evaluated(args, plan, haystack, journal)
    except (ValueError, EvaluationError, CountRefused, OSError) as error:
        raise Refusal(sentence(error)) from error


def evaluated(
    args: argparse.Namespace, plan: EvalPlan, haystack: Haystack, journal: Journal
) -> int:
    """However it ends, what was answered so far is in the result and on the page."""
    notes = notes_of(plan, haystack)
    try:
        asyncio.run(evaluate(args, plan, haystack, journal, Console(stderr=True, highlight=False)))
    except (KeyboardInterrupt, EvaluationError, CountRefused) as error:
        done = len(journal.records)
        if done:
            notes.append(f"Stopped at {done:,} of {plan.num_records:,} answers.")
            write(args.out, summarize(plan, journal.records, notes))
        going_on = f"{done} of {plan.num_records} are kept; the same with --resume goes on"
        if isinstance(error, KeyboardInterrupt):
            print(f"stopped: {going_on}", file=sys.stderr)
            return 130
        if done:
            raise EvaluationError(f"{error}\n{going_on}") from error
        raise
    result = summarize(plan, journal.records, notes)
    write(args.out, result)
    print(told(args.out, result))
    return 1 if any(cell.failed for cell in result.cells) else 0


def haystack_of(args: argparse.Namespace) -> Haystack:
    """Raises ValueError."""
    if args.haystack is not None:
        return read_haystack(args.haystack)
    longest = max(map(num_tokens, named(args.lengths, "--lengths")))
    return synthetic_haystack(max(LEAST_SYNTH_TOKENS, longest * 3 // 2), args.seed)


def plan_of(args: argparse.Namespace, haystack: Haystack) -> EvalPlan:
    """Raises ValueError."""
    routes = chosen(args.routes, ROUTES, "--routes")
    baselines = chosen(args.baselines, BASELINES, "--baselines") if args.baselines else []
    lengths = map(num_tokens, named(args.lengths, "--lengths"))
    return EvalPlan(
        model=args.model,
        seed=args.seed,
        lengths=tuple(sorted(set(lengths))),
        num_depths=args.depths,
        samples=args.samples,
        tasks=tuple(chosen(args.tasks, tuple(Task), "--tasks")),
        # Truncation comes last: it reads what retrieval has read.
        arms=(*(Arm(one) for one in routes), *(Arm(one) for one in baselines)),
        max_tokens=args.max_tokens,
        chunk_tokens=args.chunk_tokens,
        read_tokens=num_tokens(args.read_budget) if args.read_budget else None,
        haystack=haystack.name,
        haystack_digest=haystack.digest,
        edition=EDITION,
    )


def named(text: str, option: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise ValueError(f"{option} names nothing")
    return list(dict.fromkeys(names))


def chosen(text: str, known: Sequence[N], option: str) -> list[N]:
    """Raises ValueError for a name that is not known."""
    by_name = {str(one): one for one in known}
    names = named(text, option)
    if unknown := [name for name in names if name not in by_name]:
        raise ValueError(
            f"{option}: no such name: {', '.join(unknown)}; choose from {', '.join(by_name)}"
        )
    return [by_name[name] for name in names]


async def evaluate(
    args: argparse.Namespace,
    plan: EvalPlan,
    haystack: Haystack,
    journal: Journal,
    console: Console,
) -> None:
    connecting = EvalClient.connect(
        args.base_url, args.api_key, model=plan.model, arms=plan.arms, max_tokens=plan.max_tokens
    )
    async with connecting as client:
        await client.probe()
        builder = PromptBuilder(
            haystack=haystack,
            seed=plan.seed,
            num_depths=plan.num_depths,
            chunk_tokens=plan.chunk_tokens,
            count=client.count,
            tries=TRIES if client.counts_itself else FALLBACK_TRIES,
        )
        if not client.counts_itself:
            console.print(
                "no /v1/tokenize here: lengths are counted by answers of one token, slowly"
            )
        with progress(plan, console) as bar:
            runner = Runner(
                plan=plan,
                client=client,
                builder=builder,
                journal=journal,
                on_record=bar.on_record,
                on_asking=bar.on_asking,
            )
            await runner.run(args.concurrency)


@dataclass(slots=True)
class Bar:
    """A long prompt moves the bar further than a short one, so that the time left is honest."""

    progress: Progress
    task: TaskID
    done: int = 0

    def on_asking(self, key: SampleKey, arm: Arm) -> None:
        label = f"{key.task} {tokens(key.length)} {arm}"
        self.progress.update(self.task, description=label)

    def on_record(self, record: Record) -> None:
        self.done += 1
        self.progress.update(self.task, advance=record.length, done=self.done)


@contextmanager
def progress(plan: EvalPlan, console: Console) -> Iterator[Bar]:
    per_length = plan.num_records // len(plan.lengths)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[done]} of {task.fields[of]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        total = per_length * sum(plan.lengths)
        task = bar.add_task("counting", total=total, done=0, of=plan.num_records)
        yield Bar(bar, task)


def notes_of(plan: EvalPlan, haystack: Haystack) -> list[str]:
    """What a reader must know: nothing is repeated in silence."""
    longest = max(plan.lengths)
    if len(haystack.text) >= 4 * longest:
        return []
    return [
        f"The text has {len(haystack.text):,} characters; prompts that are longer repeat it, "
        f"up to {longest:,} tokens."
    ]


def write(folder: Path, result: Result) -> None:
    body = msgspec.json.format(msgspec.json.encode(result))
    for name, text in ((RESULT_NAME, body), (REPORT_NAME, report(result).encode())):
        new = folder / f"{name}.new"
        new.write_bytes(text)
        new.replace(folder / name)


def told(folder: Path, result: Result) -> str:
    lines = [f"{'length':>8}  {'route':<13}{'right':>12}  {'95 % interval':<15}{'seconds':>9}"]
    for cell in (one for one in result.cells if one.task is None):
        right = f"{cell.right} of {cell.answered}" if cell.answered else "-"
        interval = f"{cell.low:.0%} to {cell.high:.0%}" if cell.answered else "-"
        seconds = "-" if cell.cost.total_s is None else f"{cell.cost.total_s:,.2f}"
        others = [
            f"{count} {name}"
            for count, name in (
                (cell.refused, "refused"),
                (cell.failed, "failed"),
                (cell.not_asked, "not asked"),
            )
            if count
        ]
        lines.append(
            f"{tokens(cell.length):>8}  {cell.arm:<13}{right:>12}  {interval:<15}{seconds:>9}"
            f"  {', '.join(others)}".rstrip()
        )
    return "\n".join([*lines, f"{folder / REPORT_NAME} has the curves"])
