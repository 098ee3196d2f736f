"""One epoch of ranks: gathered, loaded, asked step by step; knows no requests and no scheduling."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import msgspec

from engines.gang.launcher import Launcher, RankExited
from engines.gang.link import Door, LinkLost, RankLink, frame
from engines.gang.messages import (
    Close,
    Closed,
    FromRank,
    Join,
    Ready,
    Step,
    StepDone,
    StepFailed,
    Stop,
    ToRank,
)
from engines.gang.order import RankOrder, encode_config
from engines.gang.runner import StepTooLarge

logger = logging.getLogger(__name__)

FAILURE_GRACE_S = 1.0
"""How long the others may take to tell more, once a rank has failed and the gang will end."""

NOBODY = 0
"""No sequence has this id: closing it asks ranks for nothing but a sign of life."""


class GangLost(Exception):
    """The gang is no longer whole or no longer in step; the message says why."""


class Gang:
    """All ranks of one epoch. Any of them ending, hanging or disagreeing is the end of the gang.

    `on_closed` is told every sequence that all ranks have let go of.
    """

    def __init__(
        self,
        orders: Sequence[RankOrder],
        links: Sequence[RankLink],
        launcher: Launcher,
        on_closed: Callable[[int], None],
    ) -> None:
        self.epoch = orders[0].epoch
        self.peak_rss_bytes = 0
        self._config = orders[0].config
        self._links = links
        self._launcher = launcher
        self._on_closed = on_closed
        self._offer = links[0].offer
        self._answers: asyncio.Queue[FromRank] = asyncio.Queue()
        self._num_closed: Counter[int] = Counter()
        self._is_alive = asyncio.Event()

    def send(self, message: ToRank) -> None:
        """To every rank, in order, without waiting."""
        framed = frame(message)
        for link in self._links:
            link.send(framed)

    async def join(self, timeout_s: float) -> None:
        """Have the ranks form a process group, loading the model when they have not yet.

        Raises GangLost when they do not, or cannot do it a second time.
        """
        if self.peak_rss_bytes and not self._can_meet_again:
            raise GangLost("ranks on GPUs, or that share heads, cannot meet again")
        place = self._launcher.meeting(self._offer)
        self.send(Join(rendezvous=place, config=encode_config(self._config)))
        answers = await self._collect(timeout_s, "load the model and meet")
        ready = [a for a in answers if isinstance(a, Ready)]
        if len(ready) < len(answers):
            raise GangLost("a rank spoke out of turn while loading")
        if len({a.model_digest for a in ready}) > 1:
            raise GangLost("the ranks hold different models")
        self.peak_rss_bytes = sum(a.peak_rss_bytes for a in ready)
        self._offer = next(a.offer for a in ready if a.rank == 0)

    async def run(self, step: Step) -> StepDone:
        """Run one step on every rank.

        Raises StepTooLarge when memory for it could not be had: the ranks must `join` again, and
        then are as if the step had not been. Raises GangLost when they fail, hang or differ.
        """
        self.send(step)
        answers = await self._collect(self._config.step_timeout_s, f"finish step {step.step_id}")
        failed = [a for a in answers if isinstance(a, StepFailed)]
        too_large = [a for a in failed if a.too_large]
        if too_large:
            raise StepTooLarge(too_large[0].error)
        if failed:
            raise GangLost(
                f"rank {failed[0].rank} failed in step {step.step_id}: {failed[0].error}"
            )
        return _agreed(step, answers)

    async def check(self, timeout_s: float) -> None:
        """Raises GangLost when a rank that has nothing to do shows no sign of life."""
        self._is_alive.clear()
        self.send(Close(sequence_id=NOBODY))
        try:
            async with asyncio.timeout(timeout_s):
                await self._is_alive.wait()
        except TimeoutError:
            raise GangLost(f"a rank gave no sign of life within {timeout_s:g} s") from None

    async def listen(self, link: RankLink) -> None:
        """Take in what one rank says; never returns."""
        while True:
            match await link.receive():
                case StepFailed(rank=rank, step_id=0, error=error):
                    raise GangLost(f"rank {rank} failed while loading or between steps: {error}")
                case Closed(sequence_id=sequence_id):
                    self._count_closed(sequence_id)
                case message:
                    self._answers.put_nowait(message)

    def hang_up(self) -> None:
        for link in self._links:
            link.close()

    def _count_closed(self, sequence_id: int) -> None:
        self._num_closed[sequence_id] += 1
        if self._num_closed[sequence_id] < len(self._links):
            return
        del self._num_closed[sequence_id]
        if sequence_id == NOBODY:
            self._is_alive.set()
        else:
            self._on_closed(sequence_id)

    async def _collect(self, timeout_s: float, what: str) -> list[FromRank]:
        """One answer of every rank; fewer when one of them tells of a failure and others hang."""
        answers: list[FromRank] = []
        now_s = asyncio.get_running_loop().time
        until_s = now_s() + timeout_s
        try:
            async with asyncio.timeout_at(until_s) as limit:
                while len(answers) < len(self._links):
                    answers.append(await self._answers.get())
                    grace_s = FAILURE_GRACE_S if self._is_broken(answers) else timeout_s
                    limit.reschedule(min(until_s, now_s() + grace_s))
        except TimeoutError:
            if not any(isinstance(answer, StepFailed) for answer in answers):
                raise GangLost(f"the ranks did not {what} within {timeout_s:g} s") from None
        return answers

    def _is_broken(self, answers: Sequence[FromRank]) -> bool:
        """A rank failed and the gang will end; but after a shortage of memory the others come to
        the next exchange in their own time, leave the step there, and are needed again."""
        failed = [answer for answer in answers if isinstance(answer, StepFailed)]
        can_go_on = self._can_meet_again and any(answer.too_large for answer in failed)
        return bool(failed) and not can_go_on

    @property
    def _can_meet_again(self) -> bool:
        """Not ranks that share heads: the model itself holds on to their process groups. Nor
        those on GPUs: NCCL does not tell a rank in an exchange that another has left it."""
        return self._config.tensor_parallel == 1 and self._config.device == "cpu"


def _agreed(step: Step, answers: Sequence[FromRank]) -> StepDone:
    """What every rank says of the step. Raises GangLost."""
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
    cached = sum(answer.cached_tokens for answer in done)
    return msgspec.structs.replace(done[0], cached_tokens=cached)


@asynccontextmanager
async def gathered(
    door: Door,
    launcher: Launcher,
    orders: Sequence[RankOrder],
    load_timeout_s: float,
    on_closed: Callable[[int], None],
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
            gang = Gang(orders, links, launcher, on_closed)
            watching += [watchers.create_task(gang.listen(link)) for link in links]
            await gang.join(load_timeout_s)
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
