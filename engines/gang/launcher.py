"""Starts, watches and kills the ranks of one host; knows neither their messages nor torch."""

import asyncio
import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from engines.gang.forker import (
    AllGone,
    Command,
    Exited,
    Fork,
    Forked,
    KillAll,
    Notice,
    decode_notice,
    encode_line,
)
from engines.gang.meeting import LocalMeetings
from engines.gang.order import RankOrder, encode_order

logger = logging.getLogger(__name__)

KILL_TIMEOUT_S = 2.0
NOTICE_DELAY_S = 0.2
"""A rank's own words about its end travel by another pipe and shall be heard first."""


class RankExited(Exception):
    """A rank's process ended; the message says which pid and how."""


class Launcher(Protocol):
    """How a gang's processes come to be. One gang at a time."""

    async def start(self, orders: Sequence[RankOrder]) -> None:
        """Start one process per order; returns before they have dialled in."""
        ...

    def meeting(self, offer: str) -> str:
        """Where the gang's ranks meet next; `offer` is what rank 0 proposed."""
        ...

    async def watch(self) -> None:
        """Never returns; raises RankExited when a process of the gang has ended."""
        ...

    async def kill(self) -> None:
        """When this returns, no process of the gang is left."""
        ...

    async def close(self) -> None:
        """Kill, and let go of everything."""
        ...


class ForkLauncher:
    """Forks ranks from a process of its own that has imported the heavy modules already.

    Importing torch and a transformers model takes 4-6 s of one core; forking takes 10 ms.
    """

    def __init__(
        self,
        *,
        rank_main: str = "engines.gang.rank:main",
        preload: Sequence[str] = (),
        threads_per_rank: int = 1,
    ) -> None:
        self._arguments = (rank_main, *preload)
        self._threads_per_rank = threads_per_rank
        self._forker: asyncio.subprocess.Process | None = None
        self._num_kills = 0
        self._meetings = LocalMeetings()

    async def start(self, orders: Sequence[RankOrder]) -> None:
        if self._forker is None or self._forker.returncode is not None:
            self._forker = await self._start_forker()
        for order in orders:
            await self._send(Fork(msgspec.Raw(encode_order(order))))

    def meeting(self, offer: str) -> str:
        """On the supervisor's own host, whatever is offered."""
        return self._meetings.next_place()

    async def watch(self) -> None:
        while True:
            match await self._notice():
                case Exited(pid=pid, code=code):
                    await asyncio.sleep(NOTICE_DELAY_S)
                    raise RankExited(f"rank process {pid} exited with code {code}")
                case Forked(rank=rank, pid=pid):
                    logger.info("rank started", extra={"rank": rank, "pid": pid})

    async def kill(self) -> None:
        forker = self._forker
        if forker is None:
            return
        self._num_kills += 1
        try:
            async with asyncio.timeout(KILL_TIMEOUT_S):
                await self._send(KillAll(self._num_kills))
                while await self._notice() != AllGone(self._num_kills):
                    pass
        except (TimeoutError, RankExited, OSError):
            await self._end_forker()

    async def close(self) -> None:
        await self._end_forker()
        self._meetings.close()

    async def _end_forker(self) -> None:
        """Its death takes its ranks along, stopped ones too."""
        forker, self._forker = self._forker, None
        if forker is None:
            return
        if forker.returncode is None:
            forker.kill()
        await forker.wait()

    async def _start_forker(self) -> asyncio.subprocess.Process:
        threads = str(self._threads_per_rank)
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "engines.gang.forker",
            str(os.getpid()),
            *self._arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            # OpenBLAS starts its threads when numpy is imported, and threads do not survive a fork.
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": threads},
        )

    async def _send(self, command: Command) -> None:
        assert self._forker is not None
        assert self._forker.stdin is not None
        self._forker.stdin.write(encode_line(command))
        await self._forker.stdin.drain()

    async def _notice(self) -> Notice:
        """One whole line at a time, so that a cancelled read loses nothing."""
        assert self._forker is not None
        assert self._forker.stdout is not None
        line = await self._forker.stdout.readline()
        if not line:
            raise RankExited("the process that forks ranks has ended")
        return decode_notice(line)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankDoor:
    """Where ranks dial in that something else starts, and the secret that lets them in."""

    host: str
    port: int
    token: str

    def __post_init__(self) -> None:
        if not self.token:
            raise ValueError("external ranks need a token")


class ExternalLauncher:
    """Ranks that something else starts (torchrun on several hosts): they dial in by themselves."""

    async def start(self, orders: Sequence[RankOrder]) -> None:
        logger.info("waiting for ranks", extra={"num_ranks": len(orders)})

    def meeting(self, offer: str) -> str:
        return offer

    async def watch(self) -> None:
        await asyncio.Event().wait()

    async def kill(self) -> None:
        """A rank leaves when its connection to the supervisor closes."""

    async def close(self) -> None:
        pass
