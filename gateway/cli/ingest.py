"""`ringway ingest`: the worker that parses, chunks, embeds and indexes, and its search face."""

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.cli import hosting
from gateway.cli.main import Refusal
from gateway.cli.preflight import make_data_dir

if TYPE_CHECKING:
    from ingest.settings import IngestSettings
    from ingest.wiring import Serve

DRAIN_S = 5.0
EVENTS = "RINGWAY_EVENTS_"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data-dir", type=Path, help="default: RINGWAY_INGEST_DATA_DIR")
    parser.add_argument(
        "--sqs-queue-url",
        metavar="URL",
        help="also take S3 events from this queue; default: RINGWAY_EVENTS_QUEUE_URL, if set",
    )
    hosting.add_arguments(parser, default_port=8082)


def run(args: argparse.Namespace) -> int:
    # Imported here: torch and the index cost seconds that `ringway --help` need not wait for.
    from ingest.settings import settings_from
    from ingest.wiring import serve_ingest
    from retrieval.api import RetrievalError

    async def work() -> None:
        settings = settings_from(os.environ, data_dir=args.data_dir)
        make_data_dir(settings.data_dir)
        serve = hosting.hosting(args, drain_s=DRAIN_S)
        await serve_ingest(settings, await with_events(args.sqs_queue_url, settings, serve))

    try:
        hosting.run(work())
    except* (ValueError, RetrievalError) as group:
        raise Refusal("; ".join(str(error) for error in group.exceptions)) from None
    return 0


async def with_events(queue_url: str | None, settings: "IngestSettings", serve: "Serve") -> "Serve":
    """`serve`, with S3 events if a queue is named. Raises ValueError, Refusal without packages."""
    if queue_url is None and not any(name.startswith(EVENTS) for name in os.environ):
        return serve
    try:
        from ingest.events.beside import with_queue
        from ingest.events.settings import settings_from
    except ModuleNotFoundError as error:
        raise Refusal(f"S3 events need ringway[aws] ({error})") from error

    events = settings_from(os.environ, queue_url=queue_url)
    if events.queue_url is None:
        raise Refusal(f"{EVENTS}* is set, but neither --sqs-queue-url nor {EVENTS}QUEUE_URL")
    return await with_queue(serve, settings, events)
