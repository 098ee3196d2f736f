"""The `ringway` command: names its subcommands and hands over; knows nothing of what they do."""

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import Protocol, cast

PRODUCT = "The gateway for prompts too long to be ordinary."

COMMANDS = {
    "up": "run the gateway, an engine and the ingest worker on this machine",
    "serve": "run the gateway alone",
    "engine": "run one gang: a supervisor and its ranks",
    "rank": "be one rank of a gang whose supervisor runs elsewhere (for torchrun)",
    "ingest": "run the ingest worker and its search face",
    "plan": "size a model and a context for GPUs or for this machine",
    "keys": "issue, list and revoke API keys",
    "index": "re-embed the search index with another embedding model",
    "synth": "write a synthetic legal case file with planted facts",
    "eval": "ask planted facts over lengths, depths and routes, and draw the curves",
    "calibrate": "recommend routing thresholds from an evaluation",
    "demo": "ask planted questions by every route and print a table",
}


class Command(Protocol):
    """What every module in `gateway.cli` named in COMMANDS offers."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, args: argparse.Namespace) -> int:
        """Do the work; the result is the exit code (2: the user must change something)."""
        ...


class Refusal(Exception):
    """A sentence for the user; the command exits with code 2."""


def main(argv: Sequence[str] | None = None) -> int:
    try:
        return run(list(sys.argv[1:] if argv is None else argv))
    except KeyboardInterrupt:
        return 130


def run(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="ringway", description=PRODUCT)
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, summary in COMMANDS.items():
        subparser = subparsers.add_parser(name, help=summary, description=summary)
        if name in arguments[:1]:  # the others' modules need not be imported
            load(name).add_arguments(subparser)
    args = parser.parse_args(arguments)
    try:
        return load(args.command).run(args)
    except Refusal as refusal:
        print(f"ringway {args.command}: {refusal}", file=sys.stderr)
        return 2


def load(name: str) -> Command:
    return cast(Command, importlib.import_module(f"gateway.cli.{name}"))
