"""`ringway up`: an engine, the ingest worker and the gateway on this machine, as one."""

import argparse
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType

import httpx
import platformdirs
from rich.console import Console

from engines.models.catalog import Model
from gateway.cli import engine as engine_command
from gateway.cli.banner import banner
from gateway.cli.engine_arguments import add_model_arguments, arguments_for
from gateway.cli.main import Refusal
from gateway.cli.preflight import listen_or_refuse, lock_data_dir
from gateway.cli.processes import Child, is_ready, listen, stop, url_of
from gateway.cli.serve import environment, refuse_open_address
from gateway.policy import load_policy

READY_TIMEOUT_S = 600.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080, help="0 picks a free one")
    parser.add_argument(
        "--data-dir",
        type=Path,
        default=Path(platformdirs.user_data_dir("ringway")),
        help="files, index and metadata; kept between runs (default: %(default)s)",
    )
    parser.add_argument("--policy", type=Path, help="ringway.yaml (default: the data folder's)")
    parser.add_argument("--insecure", action="store_true", help="allow a public address, no keys")
    parser.add_argument(
        "--exit-with-parent",
        action="store_true",
        help="also stop when the process that started this one dies",
    )
    add_model_arguments(parser)


def run(args: argparse.Namespace) -> int:
    started = time.monotonic()
    console = Console(stderr=True)
    settings = replace(environment(), data_dir=args.data_dir)
    refuse_open_address(args.host, settings, insecure=args.insecure)
    policy = find_policy(args.policy, args.data_dir)
    with (
        lock_data_dir(args.data_dir),
        listen_or_refuse(args.host, args.port) as gateway_sock,
    ):
        with console.status("resolving the model (the first time it is converted) ..."):
            model = engine_command.resolve(args)
        engine_command.refuse_unfit(args, model)
        children = plan_children(args, gateway_sock, policy, model)
        with Signals() as signals:
            try:
                for child in children:
                    child.start()
                if not await_ready(children, signals, console):
                    return 0
                print(
                    banner(
                        url=children[-1].url,
                        model=model.name,
                        data_dir=str(args.data_dir),
                        seconds=time.monotonic() - started,
                    ),
                    flush=True,
                )
                parent = os.getppid() if args.exit_with_parent else None
                return watch(children, signals, parent)
            finally:
                # The gateway first: it ends its streams while the engine still answers.
                stop(
                    children[::-1],
                    drain_s=settings.drain_s,
                    hurried=lambda: signals.num_signals > 1,
                )


def plan_children(
    args: argparse.Namespace,
    gateway_sock: socket.socket,
    policy: Path | None,
    model: Model,
) -> list[Child]:
    """In start order: the engine first, since loading its model takes longest."""
    logs = args.data_dir / "logs"
    logs.mkdir(exist_ok=True)
    engine_sock, ingest_sock = listen("127.0.0.1", 0), listen("127.0.0.1", 0)
    data_dir = ["--data-dir", str(args.data_dir)]
    serve = [*data_dir, "--engine", url_of(engine_sock), "--ingest", url_of(ingest_sock)]
    if policy is not None:
        serve += ["--policy", str(policy)]
    if args.insecure:
        serve += ["--insecure"]
    engine = arguments_for(args, model)
    return [
        Child("engine", engine_sock, logs / "engine.log", engine),
        Child("ingest", ingest_sock, logs / "ingest.log", data_dir),
        Child("serve", gateway_sock, logs / "gateway.log", serve),
    ]


def find_policy(given: Path | None, data_dir: Path) -> Path | None:
    """Raises Refusal for one that the gateway would not take, before anything is started."""
    kept = data_dir / "ringway.yaml"
    policy = given or (kept if kept.is_file() else None)
    try:
        load_policy(policy)
    except ValueError as error:
        raise Refusal(str(error)) from error
    return policy


class Signals:
    """SIGINT and SIGTERM set a flag, and are counted, while the block runs; the old handlers come
    back after."""

    def __init__(self) -> None:
        self.stopped = False
        self.num_signals = 0

    def __enter__(self) -> "Signals":
        self._old = {s: signal.signal(s, self._note) for s in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *exc: object) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.stopped = True
        self.num_signals += 1


def await_ready(children: Sequence[Child], signals: Signals, console: Console) -> bool:
    """Wait until all answer. False when stopped; raises Refusal when one gives up."""
    deadline = time.monotonic() + READY_TIMEOUT_S
    pending = list(children)
    # One for all polls and without TLS: a client with it loads every root certificate (60 ms).
    with (
        console.status("starting ...") as status,
        httpx.Client(verify=False, trust_env=False) as http,
    ):
        while pending and not signals.stopped:
            status.update(f"starting {', '.join(c.name for c in pending)} ...")
            refuse_dead(children)
            if time.monotonic() > deadline:
                raise Refusal(f"{pending[0].name} was not ready in time; see {pending[0].log}")
            pending = [c for c in pending if not is_ready(http, c.url)]
            time.sleep(0.1)
    return not signals.stopped


def refuse_dead(children: Sequence[Child]) -> None:
    for child in children:
        code = child.exit_code()
        if code is not None:
            raise Refusal(
                f"the {child.name} process ended with code {code}; its log {child.log} ends with\n"
                f"{child.last_words()}"
            )


def watch(children: Sequence[Child], signals: Signals, parent: int | None) -> int:
    """Until a signal, or until a child dies, or `parent` does when one is given."""
    while not signals.stopped:
        for child in children:
            if child.exit_code() is not None:
                print(f"ringway up: the {child.name} process died; stopping", file=sys.stderr)
                print(child.last_words(), file=sys.stderr)
                return 1
        if parent is not None and os.getppid() != parent:
            return 0
        time.sleep(0.2)
    return 0
