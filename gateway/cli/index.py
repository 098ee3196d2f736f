"""`ringway index migrate`: re-embeds the search index into a new version and switches to it."""

import argparse
import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from gateway.cli.main import Refusal

if TYPE_CHECKING:
    from retrieval.migration import Migration

EXPLANATION = """\
Run it after changing RINGWAY_INGEST_EMBEDDER, when the worker says that the index was built by
another embedder. The embedded index: stop the worker first. OpenSearch: workers may go on; they
are held off for the last part and must be started again with the new embedder afterwards."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXPLANATION
    parser.add_argument("deed", choices=["migrate"], help="what to do with the index")
    parser.add_argument("--data-dir", type=Path, help="default: RINGWAY_INGEST_DATA_DIR")
    parser.add_argument(
        "--restart",
        action="store_true",
        help="OpenSearch: throw away what a migration that was cut short left",
    )
    parser.add_argument(
        "--writers-stopped",
        action="store_true",
        help="OpenSearch Serverless: you have stopped every worker",
    )


def run(args: argparse.Namespace) -> int:
    # Imported here: torch and the index cost seconds that `ringway --help` need not wait for.
    from ingest.settings import settings_from
    from ingest.wiring import migrate
    from retrieval.api import RetrievalError

    columns = (TextColumn("chunks"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    try:
        settings = settings_from(os.environ, data_dir=args.data_dir)
        if not settings.data_dir.is_dir():
            raise Refusal(f"{settings.data_dir} is no data folder, so it holds no index")
        with Progress(*columns) as bar:
            task = bar.add_task("chunks", total=None)
            report = asyncio.run(
                migrate(
                    settings,
                    lambda done, total: bar.update(task, completed=done, total=total),
                    restart=args.restart,
                    writers_stopped=args.writers_stopped,
                )
            )
    except (ValueError, RetrievalError) as error:
        raise Refusal(str(error)) from None
    print(outcome(report))
    return 0


def outcome(report: "Migration") -> str:
    if report.old == report.new:
        return f"nothing to do: {report.old} is already what the configured embedder makes"
    lines = [f"{report.num_chunks} chunks re-embedded: {report.old} -> {report.new}"]
    return "\n".join([*lines, *report.notes])
