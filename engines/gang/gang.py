"""One epoch of ranks: gathered, loaded, asked step by step; knows no requests and no scheduling."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from engines.gang.launcher import Launcher, RankExited
from engines.gang.link import Door, LinkLost, RankLink, frame
from engines.gang.messages import FromRank, Ready, Step, StepDone, StepFailed, Stop, ToRank
from engines.gang.order import RankOrder

logger = logging.getLogger(__name__)


class GangLost(Exception):
    """The gang is no longer whole or no longer in step; the message says why."""


class Gang:
    """All ranks of one epoch. Any of them ending, hanging or disagreeing is the end of the gang."""

    def __init__(self, epoch: int, links: Sequence[RankLink], step_timeout_s: float) -> None:
        self.epoch = epoch
        self.peak_rss_bytes = 0
        self._links = links
        self._step_timeout_s = step_timeout_s
        self._answers: asyncio.Queue[FromRank] = asyncio.Queue()

    def send(self, message: ToRank) -> None:
        """To every rank, in order, without waiting."""
        framed = frame(message)
        for link in self._links:
            link.send(framed)

    async def become_ready(self, timeout_s: float) -> None:
        """Wait until every rank has loaded the model."""
        answers = await self._collect(timeout_s, "load the model")
        if not all(isinstance(answer, Ready) for answer in answers):
            raise GangLost("a rank spoke out of turn while loading")
        self.peak_rss_bytes = sum(a.peak_rss_bytes for a in answers if isinstance(a, Ready))

    async def run(self, step: Step) -> StepDone:
        """Run one step on every rank. Raises GangLost when they fail, hang or differ."""
        self.send(step)
        answers = await self._collect(self._step_timeout_s, f"finish step {step.step_id}")
        done = [a for a in answers if isinstance(a, StepDone) and a.step_id == step.step_id]
        if len(done) < len(answers):
            raise GangLost(f"a rank answered another step than {step.step_id}")
        for answer in done:
            # Chunks are encoded without exchange, so one rank may be done when a cancel stops
            # another; the sequence is over for both.
            if answer.aborted:
                return answer
        if any(answer.sampled != done[0].sampled for answer in done):
            raise GangLost(f"the ranks disagree about step {step.step_id}")
        return done[0]

    async def listen(self, link: RankLink) -> None:
        """Take in what one rank says; never returns."""
        while True:
            match await link.receive():
                case StepFailed(rank=rank, step_id=step_id, error=error):
                    where = f"in step {step_id}" if step_id else "while loading"
                    raise GangLost(f"rank {rank} failed {where}: {error}")
                case message:
                    self._answers.put_nowait(message)

    def hang_up(self) -> None:
        for link in self._links:
            link.close()

    async def _collect(self, timeout_s: float, what: str) -> list[FromRank]:
        try:
            async with asyncio.timeout(timeout_s):
                return [await self._answers.get() for _ in self._links]
        except TimeoutError:
            raise GangLost(f"the ranks did not {what} within {timeout_s:g} s") from None


@asynccontextmanager
async def gathered(
    door: Door, launcher: Launcher, orders: Sequence[RankOrder], load_timeout_s: float
) -> AsyncIterator[Gang]:
    """A gang that is ready; however the block ends, its processes are gone afterwards.

    Raises GangLost when the gang does not come up, or dies while the block runs: the block is
    cancelled then.
    """
    door.expect(orders[0].epoch, len(orders))
    gang: Gang | None = None
    try:
        async with asyncio.TaskGroup() as watchers:
            await launcher.start(orders)
            watching = [watchers.create_task(launcher.watch())]
            links = await _dialled_in(door, len(orders), load_timeout_s)
            gang = Gang(orders[0].epoch, links, orders[0].config.step_timeout_s)
            watching += [watchers.create_task(gang.listen(link)) for link in links]
            await gang.become_ready(load_timeout_s)
            yield gang
            for task in watching:
                task.cancel()
    except ExceptionGroup as group:
        raise _as_lost(group) from group
    except asyncio.CancelledError:
        if gang is not None:
            gang.send(Stop())
        raise
    finally:
        if gang is not None:
            gang.hang_up()
        await launcher.kill()


async def _dialled_in(door: Door, num_ranks: int, timeout_s: float) -> list[RankLink]:
    try:
        async with asyncio.timeout(timeout_s):
            return await door.admit(num_ranks)
    except TimeoutError:
        raise GangLost(f"{num_ranks} ranks did not dial in within {timeout_s:g} s") from None


def _as_lost(group: ExceptionGroup) -> Exception:
    """What a rank said itself explains more than that it hung up. Other errors stay as they are."""
    causes = group.exceptions
    if not all(isinstance(e, GangLost | LinkLost | RankExited | OSError) for e in causes):
        return group
    told = [e for e in causes if isinstance(e, GangLost)]
    return GangLost(str([*told, *causes][0]))
