"""`ringway ingest`: the worker that parses, chunks, embeds and indexes, and its search face."""

import argparse
import asyncio
import os
from pathlib import Path

from gateway.cli import hosting
from gateway.cli.main import Refusal

DRAIN_S = 5.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data-dir", type=Path, help="default: RINGWAY_INGEST_DATA_DIR")
    hosting.add_arguments(parser, default_port=8082)


def run(args: argparse.Namespace) -> int:
    # Imported here: torch and the index cost seconds that `ringway --help` need not wait for.
    from ingest.settings import settings_from
    from ingest.wiring import serve_ingest
    from retrieval.api import RetrievalError

    try:
        settings = settings_from(os.environ, data_dir=args.data_dir)
        serve = hosting.hosting(args, drain_s=DRAIN_S)
        asyncio.run(serve_ingest(settings, serve))
    except* (ValueError, RetrievalError) as group:
        raise Refusal("; ".join(str(error) for error in group.exceptions)) from None
    return 0
