"""Rounds of ranks killed and stopped at random while four requests run; counts what was harmed."""

import asyncio
import os
import signal
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from random import Random

import psutil

from engines.api import Engine, EngineError, GenerateRequest, TokenEvent
from tests.engines.gang.scripted_gang import collect, rank_pids, tokens_of
from tests.engines.gang.tiny_gang import greedy
from tests.engines.local.families import prompt_of

SIGNALS = (signal.SIGKILL, signal.SIGSTOP)
AT_ONCE = 4
LATEST_EVENT = 60
"""A round's first signal comes after at most so many events of its requests."""


@dataclass(slots=True)
class Tally:
    """Requests that ended otherwise than undisturbed ones do."""

    rounds: int = 0
    signals: int = 0
    lost: int = 0
    repeated: int = 0
    failed: int = 0

    def compare(self, got: Sequence[int] | None, wanted: Sequence[int]) -> None:
        if got is None:
            self.failed += 1
        elif len(got) > len(wanted):
            self.repeated += 1
        elif list(got) != list(wanted):
            self.lost += 1

    @property
    def harmed(self) -> int:
        return self.lost + self.repeated + self.failed


def requests() -> list[GenerateRequest]:
    """From one chunk to many, with short and long answers."""
    sizes = [(30, 40), (300, 24), (700, 10), (1200, 8), (90, 24), (600, 16)]
    return [greedy(prompt_of(size, seed), new) for seed, (size, new) in enumerate(sizes)]


async def play(engine: Engine, rounds: int, rng: Random) -> Tally:
    """Play on a gang that this process supervises."""
    pool = requests()
    wanted = [tokens_of(await collect(engine.generate(request))) for request in pool]
    tally = Tally()
    for _ in range(rounds):
        chosen = rng.sample(range(len(pool)), AT_ONCE)
        due = sorted(rng.randrange(1, LATEST_EVENT) for _ in range(rng.choice((1, 1, 1, 2))))
        one_round = Round(engine, due, rng)
        async with asyncio.TaskGroup() as tasks:
            answers = [tasks.create_task(one_round.answer(pool[index])) for index in chosen]
        for index, answer in zip(chosen, answers, strict=True):
            tally.compare(answer.result(), wanted[index])
        tally.rounds += 1
        tally.signals += one_round.num_sent
    return tally


class Round:
    """Four streams, and the events at which a rank gets a signal. The second signal of a round
    often hits a gang that is just recovering."""

    def __init__(self, engine: Engine, due: list[int], rng: Random) -> None:
        self.num_sent = 0
        self._engine = engine
        self._due = due
        self._rng = rng
        self._num_events = 0

    async def answer(self, request: GenerateRequest) -> list[int] | None:
        tokens: list[int] = []
        try:
            async with aclosing(self._engine.generate(request)) as events:
                async for event in events:
                    if isinstance(event, TokenEvent):
                        tokens.append(event.id)
                    self._count()
        except EngineError:
            return None
        return tokens

    def _count(self) -> None:
        self._num_events += 1
        if self._due and self._num_events >= self._due[0]:
            self.num_sent += disturb(self._rng)
            self._due.pop(0)


def disturb(rng: Random) -> bool:
    """Send a random signal to a random rank, if there is one; the forker is never hit."""
    ranks = [pid for pid in rank_pids(os.getpid()) if is_rank(pid)]
    if not ranks:
        return False
    os.kill(rng.choice(ranks), rng.choice(SIGNALS))
    return True


def is_rank(pid: int) -> bool:
    try:
        return psutil.Process(pid).ppid() != os.getpid()
    except psutil.NoSuchProcess:
        return False
