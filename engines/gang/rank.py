"""The main of one rank: obeys its supervisor step by step; knows the executor, not requests."""

import logging
import os
import resource
import sys
from collections.abc import Callable
from typing import NoReturn, Protocol

from engines.gang.messages import (
    Ask,
    Close,
    Decode,
    Encode,
    Open,
    Prefill,
    Ready,
    Step,
    StepDone,
    StepFailed,
    ToRank,
)
from engines.gang.order import RankOrder
from engines.gang.rank_link import SupervisorLink

logger = logging.getLogger(__name__)


class StepRunner(Protocol):
    """What a rank needs of an executor."""

    def open(self, message: Open) -> None: ...

    def run(self, step: Step, cancelled: Callable[[int], bool]) -> StepDone: ...

    def close(self, sequence_id: int) -> None: ...


class Rank:
    """Loads, then obeys in order; any failure is told to the supervisor before it ends the rank."""

    def __init__(self, link: SupervisorLink, rank: int) -> None:
        self._link = link
        self._rank = rank
        self._step_id = 0

    def serve(self, load: Callable[[], StepRunner]) -> int:
        """Returns the exit code."""
        try:
            runner = load()
            self._link.send(Ready(rank=self._rank, peak_rss_bytes=_peak_rss_bytes()))
            for message in self._link.messages():
                self._obey(message, runner)
        except Exception as error:
            logger.exception("rank failed", extra={"step_id": self._step_id})
            cause = f"{type(error).__name__}: {error}"
            self._link.send(StepFailed(step_id=self._step_id, rank=self._rank, error=cause))
            return 1
        return 0

    def _obey(self, message: ToRank, runner: StepRunner) -> None:
        match message:
            case Open():
                runner.open(message)
            case Close(sequence_id=sequence_id):
                runner.close(sequence_id)
            case Prefill() | Encode() | Ask() | Decode():
                self._step_id = message.step_id
                self._link.send(runner.run(message, self._link.is_cancelled))


def main(order: RankOrder) -> NoReturn:
    """Serve the supervisor until it says Stop or is gone. The process ends in here.

    Always by os._exit: a gloo group that is not torn down by all ranks together can abort an
    interpreter that shuts down in order.
    """
    logging.basicConfig(
        level=logging.INFO,
        format=f"%(asctime)s rank {order.rank} %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
        force=True,
    )
    code = Rank(SupervisorLink(order), order.rank).serve(lambda: _load(order))
    sys.stderr.flush()
    os._exit(code)


def _load(order: RankOrder) -> StepRunner:
    import torch

    from engines.local.executor import Executor
    from engines.local.ring import RingGroup

    torch.set_num_threads(order.config.threads_per_rank)
    group = RingGroup.connect(
        order.rendezvous,
        rank=order.rank,
        size=order.config.ranks,
        timeout_s=order.config.step_timeout_s,
    )
    return Executor.load(order.config, group)


def _peak_rss_bytes() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
