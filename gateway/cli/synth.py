"""`ringway synth`: writes a synthetic case file and its answer key; knows files and arguments."""

import argparse
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from gateway.cli.main import Refusal
from gateway.cli.preflight import sentence
from ingest.synth.api import (
    CaseFile,
    CaseRequest,
    DocumentFormat,
    EstimateCounter,
    TokenCounter,
    TokenizerCounter,
    encode_key,
    synthesize,
)

KEY_NAME = "answer_key.json"
LONG_TOKENS = 200_000
"""From here on a progress bar is worth its line."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, required=True, help="folder to write to; made if new")
    parser.add_argument("--tokens", type=int, default=60_000, help="length of all documents")
    parser.add_argument("--seed", type=int, default=0, help="the same seed gives the same bytes")
    parser.add_argument("--documents", type=int, default=1, help="volumes to spread the case over")
    parser.add_argument("--facts", type=int, help="facts to plant (default: one per 5,000 tokens)")
    parser.add_argument("--format", choices=[*DocumentFormat], default=DocumentFormat.TXT)
    parser.add_argument(
        "--tokenizer",
        type=Path,
        help="tokenizer.json to count with; without it the length is an estimate",
    )
    parser.add_argument("--force", action="store_true", help="write over an earlier case file")


def run(args: argparse.Namespace) -> int:
    """Exit code 0; raises Refusal for what the user must change."""
    out: Path = args.out
    try:
        request = CaseRequest(
            seed=args.seed,
            num_tokens=args.tokens,
            num_documents=args.documents,
            num_facts=args.facts,
            document_format=DocumentFormat(args.format),
        )
        counter = counter_for(args.tokenizer)
        if (out / KEY_NAME).exists() and not args.force:
            raise Refusal(f"{out} already holds a case file; --force writes over it")
        case = with_progress(request, counter)
        write(case, out)
    except (OSError, ValueError) as error:
        raise Refusal(sentence(error)) from error
    print(summary(case, out))
    return 0


def counter_for(tokenizer: Path | None) -> TokenCounter:
    return EstimateCounter() if tokenizer is None else TokenizerCounter.load(tokenizer)


def with_progress(request: CaseRequest, counter: TokenCounter) -> CaseFile:
    console = Console(stderr=True)
    columns = (TextColumn("writing"), BarColumn(), TextColumn("{task.completed:,.0f} tokens"))
    is_shown = console.is_terminal and request.num_tokens >= LONG_TOKENS
    with Progress(*columns, TimeElapsedColumn(), console=console, disable=not is_shown) as bar:
        task = bar.add_task("writing", total=request.num_tokens)
        return synthesize(request, counter, lambda count: bar.advance(task, count))


def write(case: CaseFile, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for document in case.documents:
        (out / document.filename).write_bytes(document.text.encode())
    (out / KEY_NAME).write_bytes(encode_key(case.key))


def summary(case: CaseFile, out: Path) -> str:
    totals = case.key.tokens
    about = "" if totals.is_exact else "about "
    files = ", ".join(document.filename for document in case.documents)
    return (
        f"{out}: {files}; {about}{totals.counted:,} tokens ({totals.method}), "
        f"{len(case.key.questions)} planted facts in {KEY_NAME}"
    )
