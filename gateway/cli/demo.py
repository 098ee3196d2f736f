"""`ringway demo`: plants facts, asks for them by every route, and judges what comes back."""

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

from gateway.api import Route
from gateway.cli.demo_client import Answer, DemoClient, DemoError, Refused
from gateway.cli.demo_table import Row, table
from gateway.cli.main import Refusal
from gateway.cli.own_gateway import NotStarted, own_gateway
from ingest.synth.api import (
    CaseDocument,
    CaseFile,
    CaseRequest,
    EstimateCounter,
    Question,
    synthesize,
)

MAX_ANSWER_TOKENS = 48
PLAIN_WIDTH = 160
"""Columns of the table when the output is not a terminal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoPlan:
    routes: tuple[Route, ...]
    keep: bool
    ingest_deadline_s: float
    model: str | None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--base-url",
        default=os.environ.get("RINGWAY_BASE_URL"),
        help="a running gateway (default: RINGWAY_BASE_URL, or one started for the demo)",
    )
    parser.add_argument("--api-key", default="none", help="sent as the bearer token")
    parser.add_argument("--model", help="default: the first one that the gateway lists")
    parser.add_argument("--tokens", type=int, default=60_000, help="length of the case file")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--routes",
        default=",".join(Route),
        help="comma-separated, asked in this order (default: %(default)s)",
    )
    parser.add_argument(
        "--questions-only",
        action="store_true",
        help="print the questions and the planted answers, and ask nobody",
    )
    parser.add_argument("--keep", action="store_true", help="leave the file in the gateway")
    parser.add_argument("--ingest-timeout", type=float, default=600.0, metavar="SECONDS")


def run(args: argparse.Namespace) -> int:
    """0 when retrieval found every planted fact with a right citation, else 1."""
    try:
        plan = DemoPlan(
            routes=parse_routes(args.routes),
            keep=args.keep,
            ingest_deadline_s=args.ingest_timeout,
            model=args.model,
        )
        request = CaseRequest(seed=args.seed, num_tokens=args.tokens)
    except ValueError as error:
        raise Refusal(str(error)) from error
    case = synthesize(request, EstimateCounter())
    console = make_console()
    introduce(console, case)
    if args.questions_only:
        return 0
    try:
        with ExitStack() as stack:
            url = args.base_url or stack.enter_context(own_gateway(console))
            client = stack.enter_context(DemoClient.connect(url, args.api_key))
            rows = Demo(client=client, console=console, case=case, plan=plan).play()
    except (DemoError, NotStarted) as error:
        raise Refusal(str(error)) from error
    console.print(table(rows, is_terminal=console.is_terminal))
    return verdict(console, rows)


def parse_routes(text: str) -> tuple[Route, ...]:
    """Raises ValueError for a name that is no route, or none at all."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if unknown := [name for name in names if name not in set(Route)]:
        raise ValueError(f"no such route: {', '.join(unknown)}; choose from {', '.join(Route)}")
    if not names:
        raise ValueError("--routes names no route")
    return tuple(Route(name) for name in dict.fromkeys(names))


def make_console() -> Console:
    """Colours and the window's width on a terminal; elsewhere plain text, wide enough."""
    if sys.stdout.isatty():
        return Console(highlight=False)
    return Console(width=PLAIN_WIDTH, no_color=True, highlight=False)


def introduce(console: Console, case: CaseFile) -> None:
    (document,) = case.documents
    console.print(
        f"Case file {document.filename}: {len(document.text):,} characters, about "
        f"{document.num_tokens:,} tokens ({case.key.tokens.method})",
        markup=False,
    )
    for number, asked in enumerate(case.key.demo_questions, start=1):
        depth = f"{asked.place.depth:.0%} deep"
        console.print(f"  Q{number} {asked.question} -> {asked.answer} ({depth})", markup=False)


class Demo:
    """One run against one gateway; the file it uploads is deleted again unless kept."""

    def __init__(
        self, *, client: DemoClient, console: Console, case: CaseFile, plan: DemoPlan
    ) -> None:
        self._client = client
        self._console = console
        self._document: CaseDocument = case.documents[0]
        self._questions: Sequence[Question] = case.key.demo_questions
        self._plan = plan

    def play(self) -> list[Row]:
        model = self._plan.model or self._client.first_model()
        with self._uploaded() as file_id:
            rows: list[Row] = []
            for route in self._plan.routes:
                rows += self._ask_route(route, model, file_id)
        self._tell_length(rows)
        return rows

    @contextmanager
    def _uploaded(self) -> Iterator[str]:
        body = self._document.text.encode()
        with self._progress(DownloadColumn()) as bar:
            task = bar.add_task("upload", total=len(body))
            file_id = self._client.upload(
                self._document.filename, body, lambda sent: bar.advance(task, sent)
            )
        try:
            self._wait(file_id)
            yield file_id
        finally:
            if not self._plan.keep:
                self._client.delete(file_id)

    def _wait(self, file_id: str) -> None:
        seen: list[str] = []

        def show(status: str) -> None:
            if status not in seen:
                seen.append(status)
                self._console.print(f"{file_id}: {status}", markup=False)

        self._client.wait_processed(
            file_id, deadline_s=self._plan.ingest_deadline_s, on_status=show
        )

    def _ask_route(self, route: Route, model: str, file_id: str) -> Iterator[Row]:
        """A row for each question; a single one when the route refuses the prompt's length."""
        for number, asked in enumerate(self._questions, start=1):
            body = chat_body(model, file_id, asked.question, route)
            outcome = self._ask(f"{route} Q{number}", body)
            is_refused = isinstance(outcome, Refused) and outcome.limit is not None
            yield Row(
                number=None if is_refused else number,
                route=route,
                question=asked,
                outcome=outcome,
                document=self._document.text,
                file_id=file_id,
            )
            if is_refused:
                return

    def _ask(self, label: str, body: dict[str, object]) -> Answer | Refused:
        with self._progress(TextColumn("{task.fields[of]}")) as bar:
            task = bar.add_task(label, total=100, of="")

            def on_prefill(percent: int, num_tokens: int) -> None:
                bar.update(task, completed=percent, of=f"of {num_tokens:,} tokens read")

            outcome = self._client.ask(body, on_prefill)
        if not self._console.is_terminal:
            took = f"{outcome.seconds:.1f} s" if isinstance(outcome, Answer) else "refused"
            self._console.print(f"{label}: {took}", markup=False)
        return outcome

    def _progress(self, tail: DownloadColumn | TextColumn) -> Progress:
        return Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            tail,
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )

    def _tell_length(self, rows: Sequence[Row]) -> None:
        counted = (row.prompt_tokens for row in rows)
        exact = next((number for number in counted if number is not None), None)
        if exact is not None:
            self._console.print(
                f"The gateway counted {exact:,} prompt tokens; "
                f"the estimate was {self._document.num_tokens:,}.",
                markup=False,
            )


def chat_body(model: str, file_id: str, question: str, route: Route) -> dict[str, object]:
    file_part = {"type": "file", "file": {"file_id": file_id}}
    return {
        "model": model,
        "messages": [{"role": "user", "content": [file_part, {"type": "text", "text": question}]}],
        "fidelity": route.value,
        "allow_fallback": False,
        "temperature": 0,
        "max_completion_tokens": MAX_ANSWER_TOKENS,
    }


def verdict(console: Console, rows: Sequence[Row]) -> int:
    """Judges retrieval; a run that did not ask it is judged by whether anything answered."""
    searched = [row for row in rows if row.route is Route.RETRIEVAL]
    if not searched:
        return 0 if any(row.answer is not None for row in rows) else 1
    good = sum(row.is_found and row.is_cited_right for row in searched)
    console.print(
        f"Retrieval found {good} of {len(searched)} planted facts with a right citation.",
        markup=False,
    )
    return 0 if good == len(searched) else 1
