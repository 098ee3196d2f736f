"""`ringway serve`: the gateway alone, in front of an engine and an ingest worker."""

import argparse
import asyncio
import os
import time
from dataclasses import replace
from pathlib import Path

from gateway.auth import KeyRing, may_bind
from gateway.cli import hosting
from gateway.cli.main import Refusal
from gateway.cli.preflight import make_data_dir
from gateway.settings import GatewaySettings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--engine", help="URL of `ringway engine`")
    parser.add_argument("--ingest", help="URL of `ringway ingest`")
    parser.add_argument("--policy", type=Path, help="ringway.yaml (default: the shipped one)")
    parser.add_argument("--insecure", action="store_true", help="allow a public address, no keys")
    hosting.add_arguments(parser, default_port=8080)


def run(args: argparse.Namespace) -> int:
    # Imported here: it brings FastAPI, which `ringway --help` need not wait for.
    from gateway.wiring import serve_gateway

    try:
        settings = settings_of(args)
        if args.fd is None:
            refuse_open_address(args.host, settings, insecure=args.insecure)
        make_data_dir(settings.data_dir)
        serve = hosting.hosting(args, drain_s=settings.drain_s, log_format=settings.log_format)
        hosting.run(serve_gateway(settings, serve))
    except ValueError as error:
        raise Refusal(str(error)) from error
    return 0


def settings_of(args: argparse.Namespace) -> GatewaySettings:
    """The environment's settings, overridden by what was typed. Raises ValueError."""
    typed = {
        name: getattr(args, name)
        for name in ("data_dir", "engine", "ingest", "policy")
        if getattr(args, name, None) is not None
    }
    return replace(environment(), **typed)


def environment() -> GatewaySettings:
    """Raises Refusal for unknown names and bad values."""
    try:
        return GatewaySettings.from_environ(os.environ)
    except ValueError as error:
        raise Refusal(str(error)) from error


def refuse_open_address(host: str, settings: GatewaySettings, *, insecure: bool) -> None:
    if insecure or may_bind(host, KeyRing(settings.api_keys)):
        return
    if not asyncio.run(_has_issued_keys(settings)):
        raise Refusal(
            f"{host} can be reached from other machines and there are no keys; issue one with "
            "`ringway keys create`, set RINGWAY_API_KEYS, or pass --insecure"
        )


async def _has_issued_keys(settings: GatewaySettings) -> bool:
    from gateway.tenancy.wiring import has_issued_keys

    return await has_issued_keys(settings, clock=time.time)
