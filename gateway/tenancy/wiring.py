"""Opens what keys, limits and the policy in force are kept in; chooses between memory and Redis."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from gateway.admin.board import PolicyBoard
from gateway.admin.history import SqlHistory
from gateway.policy import Policy, load_policy
from gateway.settings import GatewaySettings
from gateway.tenancy.accounts import Accounts
from gateway.tenancy.api import Limits
from gateway.tenancy.keys import KeyBook
from gateway.tenancy.memory_limits import MemoryLimits
from gateway.tenancy.outage import FailClosed, FailOpen
from gateway.tenancy.schema import metadata
from gateway.tenancy.spending import SqlSpending
from gateway.together import beside
from ingest.database import Database, sqlite_url


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenancy:
    issued: KeyBook
    accounts: Accounts
    board: PolicyBoard


@asynccontextmanager
async def open_tenancy(
    settings: GatewaySettings,
    policy: Policy,
    *,
    clock: Callable[[], float],
    refused: Callable[[str], None],
) -> AsyncIterator[Tenancy]:
    """Raises ValueError for a Redis URL or a kept policy that cannot be read, and TransientError
    without a database."""
    database = await open_tables(settings)
    try:
        limits = _limits(settings, clock)
        accounts = Accounts(limits, SqlSpending(database), clock=clock, refused=refused)
        board = PolicyBoard(
            policy,
            clock=clock,
            history=SqlHistory(database),
            load=lambda: load_policy(settings.policy),
        )
        await board.open()
        try:
            async with beside(accounts.keep_renewing()), beside(board.keep_fresh()):
                yield Tenancy(issued=KeyBook(database, clock=clock), accounts=accounts, board=board)
        finally:
            await accounts.aclose()
    finally:
        await database.aclose()


async def open_tables(settings: GatewaySettings) -> Database:
    """The metadata database with the tables of keys, spending and policies."""
    return await Database.connect(database_url(settings), metadata)


async def has_issued_keys(settings: GatewaySettings, *, clock: Callable[[], float]) -> bool:
    """Whether a key was ever issued here; looks without making a database."""
    if settings.database_url is None and not _sqlite_path(settings).exists():
        return False
    database = await open_tables(settings)
    try:
        return await KeyBook(database, clock=clock).any()
    finally:
        await database.aclose()


def database_url(settings: GatewaySettings) -> str:
    return settings.database_url or sqlite_url(_sqlite_path(settings))


def _sqlite_path(settings: GatewaySettings) -> Path:
    return settings.data_dir / "metadata.db"


def _limits(settings: GatewaySettings, clock: Callable[[], float]) -> Limits:
    own = MemoryLimits(clock=clock)
    if settings.redis_url is None:
        return own
    try:
        from gateway.tenancy.redis_limits import RedisLimits
    except ImportError as error:
        raise ValueError("RINGWAY_REDIS_URL needs the package redis") from error

    shared = RedisLimits.connect(settings.redis_url.get_secret_value())
    return FailOpen(shared, own) if settings.limits_on_outage == "open" else FailClosed(shared)
