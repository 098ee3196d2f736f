"""`ringway engine`: one gang, that is a torch-free supervisor with an HTTP face and its ranks."""

import argparse
import asyncio
import os
import re
from collections.abc import Mapping
from pathlib import Path

from engines.api import EngineError, ModelMissing
from engines.config import EngineConfig
from engines.gang.launcher import RankDoor
from engines.memory import kv_budget_tokens
from engines.models.catalog import Model, resolve_model
from engines.models.folder import read_folder
from gateway.cli import hosting
from gateway.cli.main import Refusal

DRAIN_S = 2.0
TOKEN_VARIABLE = "RINGWAY_RANK_TOKEN"
UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


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


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """What `ringway up` takes as well and hands on."""
    parser.add_argument(
        "--model", help="a Hugging Face folder, hub id or GGUF file (default: SmolLM2-135M)"
    )
    parser.add_argument("--model-name", help="the name to serve it under")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--threads", type=int, help="per rank (default: cores / ranks)")
    parser.add_argument("--dtype", choices=("auto", "float32", "bfloat16"), default="auto")
    parser.add_argument("--kv-budget", help="KV of all sequences, such as 4GiB (default: spare)")


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


def engine_config(args: argparse.Namespace, model: Model) -> EngineConfig:
    """Raises ValueError for sizes that cannot be."""
    if args.ranks < 1:
        raise ValueError("--ranks must be at least 1")
    threads = args.threads or max(1, (os.cpu_count() or 1) // args.ranks)
    return EngineConfig(
        model_dir=model.folder,
        model_name=model.name,
        ranks=args.ranks,
        threads_per_rank=threads,
        dtype=best_dtype() if args.dtype == "auto" else args.dtype,
        kv_budget_bytes=None if args.kv_budget is None else num_bytes(args.kv_budget),
    )


def best_dtype() -> str:
    """bfloat16 where the processor multiplies it (1.8 times as fast here), else float32."""
    flags = Path("/proc/cpuinfo")
    text = flags.read_text() if flags.is_file() else ""
    return "bfloat16" if re.search(r"\b(avx512_bf16|amx_bf16)\b", text) else "float32"


def num_bytes(text: str) -> int:
    """ "4GiB" in bytes. Raises ValueError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]iB|)", text)
    if match is None:
        raise ValueError(f"{text!r} is no size; write bytes, or a number and KiB, MiB, GiB or TiB")
    return int(float(match[1]) * UNITS[match[2]])


def arguments_for(args: argparse.Namespace, model: Model) -> list[str]:
    """The same engine, in another process. The model is resolved already."""
    given = {
        "--model": model.folder,
        "--model-name": model.name,
        "--ranks": args.ranks,
        "--threads": args.threads,
        "--dtype": args.dtype,
        "--kv-budget": args.kv_budget,
    }
    typed = {name: str(value) for name, value in given.items() if value is not None}
    return [part for pair in typed.items() for part in pair]


def refuse_unfit(args: argparse.Namespace, model: Model) -> None:
    """Raises Refusal for sizes that cannot be, and with the numbers when memory is too small."""
    from engines.wiring import available_bytes

    try:
        config = engine_config(args, model)
        kv_budget_tokens(read_folder(config.model_dir).shape, config, available_bytes())
    except (ValueError, EngineError) as error:
        raise Refusal(str(error)) from error
