"""`ringway keys`: issues, lists and revokes the gateway's API keys, in its metadata database."""

import argparse
import asyncio
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from gateway.api import Fidelity
from gateway.cli.main import Refusal
from gateway.cli.preflight import make_data_dir
from gateway.cli.serve import environment

if TYPE_CHECKING:
    from gateway.settings import GatewaySettings
    from gateway.tenancy.api import Grants
    from gateway.tenancy.keys import IssuedKey, KeyBook

EXPLANATION = """\
A running gateway takes a new key at once and stops taking a revoked one within a second. Limits
that are not given do not exist. Only the key's SHA-256 is kept: its text is shown once."""

UNITS_S = {"h": 3600, "d": 86_400, "w": 7 * 86_400}
LASTS = re.compile(r"(\d+)([hdw])")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXPLANATION
    deeds = parser.add_subparsers(dest="deed", required=True, metavar="DEED")
    create = deeds.add_parser("create", help="issue a key and print it")
    create.add_argument("--name", required=True, help="for people")
    create.add_argument("--tenant", default="local", help="whose files and stores it sees")
    create.add_argument("--model", action="append", help="may use this model only; may repeat")
    create.add_argument(
        "--fidelity",
        action="append",
        choices=[one.value for one in Fidelity],
        help="may ask for this fidelity only; may repeat",
    )
    create.add_argument("--requests-per-minute", type=int)
    create.add_argument("--tokens-per-minute", type=int, help="prompt and answer together")
    create.add_argument("--long-prompts", type=int, help="at a time; the policy says what is long")
    create.add_argument("--monthly-budget", type=float, help="in the unit of the policy's prices")
    create.add_argument("--expires", help="30d, 12h, 4w, or a date such as 2027-01-31")
    listed = deeds.add_parser("list", help="show all keys, without their text")
    revoke = deeds.add_parser("revoke", help="end a key")
    revoke.add_argument("id", help="as `list` shows it")
    for deed in (create, listed, revoke):
        deed.add_argument("--data-dir", type=Path, help="default: RINGWAY_DATA_DIR")


def run(args: argparse.Namespace) -> int:
    settings = environment()
    if args.data_dir is not None:
        settings = replace(settings, data_dir=args.data_dir)
    try:
        return asyncio.run(_run(args, settings))
    except ValueError as error:
        raise Refusal(str(error)) from error


async def _run(args: argparse.Namespace, settings: "GatewaySettings") -> int:
    from gateway.tenancy.keys import KeyBook
    from gateway.tenancy.wiring import open_tables

    make_data_dir(settings.data_dir)
    database = await open_tables(settings)
    try:
        deed = {"create": _create, "list": _list, "revoke": _revoke}[args.deed]
        return await deed(args, KeyBook(database, clock=time.time))
    finally:
        await database.aclose()


async def _create(args: argparse.Namespace, book: "KeyBook") -> int:
    expires_at = None if args.expires is None else end_of(args.expires, time.time())
    key, text = await book.create(
        name=args.name, tenant=args.tenant, grants=grants_of(args), expires_at=expires_at
    )
    Console(stderr=True).print(
        f"{key.id} for tenant '{key.tenant}'. Keep the key now: nobody can show it again."
    )
    print(text)
    return 0


async def _list(args: argparse.Namespace, book: "KeyBook") -> int:
    table = Table("id", "key", "name", "tenant", "may", "limits", "ends", "state", box=None)
    for key in await book.list():
        table.add_row(*row_of(key, time.time()))
    Console().print(table)
    return 0


async def _revoke(args: argparse.Namespace, book: "KeyBook") -> int:
    if not await book.revoke(args.id):
        raise Refusal(f"no key {args.id} that is not revoked already")
    return 0


def grants_of(args: argparse.Namespace) -> "Grants":
    """Raises ValueError for limits below 1."""
    from gateway.tenancy.api import Grants

    budget = args.monthly_budget
    fidelities = None if args.fidelity is None else tuple(Fidelity(one) for one in args.fidelity)
    return Grants(
        models=None if args.model is None else tuple(args.model),
        fidelities=fidelities,
        requests_per_min=args.requests_per_minute,
        tokens_per_min=args.tokens_per_minute,
        long_prompts=args.long_prompts,
        monthly_budget_micros=None if budget is None else round(budget * 1_000_000),
    )


def end_of(text: str, now_s: float) -> int:
    """Unix seconds. Raises ValueError."""
    lasts = LASTS.fullmatch(text)
    if lasts:
        return int(now_s) + int(lasts[1]) * UNITS_S[lasts[2]]
    try:
        end = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"--expires '{text}' is neither 30d, 12h, 4w nor a date") from None
    return int((end if end.tzinfo else end.replace(tzinfo=UTC)).timestamp())


def row_of(key: "IssuedKey", now_s: float) -> Sequence[str]:
    grants = key.grants
    may = [*(grants.models or ()), *(grants.fidelities or ())]
    budget = grants.monthly_budget_micros
    limits = (
        (grants.requests_per_min, "requests/min"),
        (grants.tokens_per_min, "tokens/min"),
        (grants.long_prompts, "long prompts"),
        (None if budget is None else f"{budget / 1_000_000:g}", "a month"),
    )
    state = "valid" if key.is_valid_at(now_s) else "expired"
    ends = key.expires_at
    return (
        key.id,
        f"rk-…{key.hint}",
        key.name,
        key.tenant,
        ", ".join(may) or "all",
        ", ".join(f"{limit} {unit}" for limit, unit in limits if limit is not None) or "none",
        "-" if ends is None else datetime.fromtimestamp(ends, UTC).strftime("%Y-%m-%d %H:%M"),
        state if key.revoked_at is None else "revoked",
    )
