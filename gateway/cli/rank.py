"""`ringway rank`: one rank of a gang whose supervisor runs elsewhere; torchrun starts it."""

import argparse
import os
from collections.abc import Mapping

from engines.api import EngineError
from gateway.cli.engine import add_token_argument, address, rank_token, resolve
from gateway.cli.main import Refusal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--supervisor", required=True, help="where `ringway engine --rank-listen` listens"
    )
    parser.add_argument("--model", help="the engine's model, as it is called on this host")
    parser.add_argument("--threads", type=int, help="(default: cores / ranks on this host)")
    parser.add_argument("--interface", help="between ranks (default: where the supervisor is)")
    parser.add_argument("--wait-s", type=float, default=600.0, help="for the supervisor")
    add_token_argument(parser)
    parser.set_defaults(model_name=None)


def run(args: argparse.Namespace) -> int:
    from engines.gang.external_rank import Member, serve_member

    host, port = address(args.supervisor)
    env = os.environ
    try:
        member = Member(
            supervisor_host=host,
            supervisor_port=port,
            token=rank_token(args.rank_token_file, env),
            rank=number(env, "RANK"),
            size=number(env, "WORLD_SIZE"),
            host=variable(env, "MASTER_ADDR"),
            model_dir=resolve(args).folder,
            threads_per_rank=args.threads or _fair_threads(env),
            local_rank=number({"LOCAL_RANK": "0", **env}, "LOCAL_RANK"),
            interface=args.interface,
            wait_s=args.wait_s,
        )
        serve_member(member)
    except EngineError as error:
        raise Refusal(str(error)) from error


def variable(env: Mapping[str, str], name: str) -> str:
    value = env.get(name)
    if not value:
        raise Refusal(f"{name} is not set: start ranks with torchrun")
    return value


def number(env: Mapping[str, str], name: str) -> int:
    value = variable(env, name)
    if not value.isdecimal():
        raise Refusal(f"{name} must be a number, not {value!r}")
    return int(value)


def _fair_threads(env: Mapping[str, str]) -> int:
    here = env.get("LOCAL_WORLD_SIZE", "1")
    return max(1, (os.cpu_count() or 1) // (int(here) if here.isdecimal() else 1))
