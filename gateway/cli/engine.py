"""`ringway engine`: one gang, that is a torch-free supervisor with an HTTP face and its ranks."""

import argparse
import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

from engines.api import EngineError, ModelMissing
from engines.gang.launcher import RankDoor
from engines.models.catalog import Model, resolve_model
from engines.models.folder import read_folder
from gateway.cli import hosting
from gateway.cli.engine_arguments import add_model_arguments, engine_config
from gateway.cli.main import Refusal

DRAIN_S = 2.0
TOKEN_VARIABLE = "RINGWAY_RANK_TOKEN"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    hosting.add_arguments(parser, default_port=8081)
    add_model_arguments(parser)
    parser.add_argument(
        "--external-ranks", type=int, help="wait for so many `ringway rank`, and start none"
    )
    parser.add_argument("--rank-listen", default="127.0.0.1:8082", help="where they dial in")
    add_token_argument(parser)


def add_token_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--rank-token-file",
        type=Path,
        help=f"the secret that ranks and supervisor share (default: ${TOKEN_VARIABLE})",
    )


def run(args: argparse.Namespace) -> int:
    # Imported here: uvicorn and FastAPI are not needed to read the arguments.
    from engines.wiring import serve_engine

    try:
        door = rank_door(args)
        if door is not None:
            args.ranks = args.external_ranks
        config = engine_config(args, resolve(args))
        asyncio.run(serve_engine(config, hosting.hosting(args, drain_s=DRAIN_S), door=door))
    except (ValueError, EngineError) as error:
        raise Refusal(str(error)) from error
    return 0


def rank_door(args: argparse.Namespace) -> RankDoor | None:
    """Where external ranks dial in; None when there are none. Raises Refusal."""
    if args.external_ranks is None:
        return None
    host, port = address(args.rank_listen)
    return RankDoor(host=host, port=port, token=rank_token(args.rank_token_file, os.environ))


def rank_token(path: Path | None, env: Mapping[str, str]) -> str:
    """From a file or the environment, never from the command line, which others can read.

    Raises Refusal.
    """
    try:
        token = path.read_text().strip() if path else env.get(TOKEN_VARIABLE, "")
    except OSError as error:
        raise Refusal(f"the token cannot be read: {error}") from error
    if not token:
        raise Refusal(f"ranks need a token: set {TOKEN_VARIABLE} or give --rank-token-file")
    return token


def address(text: str) -> tuple[str, int]:
    """ "host:port". Raises Refusal."""
    host, colon, port = text.rpartition(":")
    if not (host and colon and port.isdecimal() and int(port) < 1 << 16):
        raise Refusal(f"{text!r} is no address; write host:port")
    return host.strip("[]"), int(port)


def resolve(args: argparse.Namespace) -> Model:
    """May convert or download, which takes minutes; blocks meanwhile."""
    try:
        model = resolve_model(args.model)
    except ModelMissing as error:
        raise Refusal(str(error)) from error
    return Model(args.model_name, model.folder) if args.model_name else model


def refuse_unfit(args: argparse.Namespace, model: Model) -> None:
    """Raises Refusal for sizes that cannot be, and with the numbers when memory is too small."""
    from engines.wiring import local_kv_budget

    try:
        config = engine_config(args, model)
        local_kv_budget(config, read_folder(config.model_dir))
    except (ValueError, EngineError) as error:
        raise Refusal(str(error)) from error
