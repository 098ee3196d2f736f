"""The main of one rank: obeys its supervisor step by step; knows the executor, not requests."""

import logging
import os
import resource
import sys
from collections.abc import Callable
from typing import NoReturn

from engines.gang.meeting import offer
from engines.gang.messages import (
    Ask,
    Close,
    Closed,
    Decode,
    Encode,
    Fork,
    Join,
    Open,
    Prefill,
    Ready,
    Step,
    StepFailed,
    ToRank,
)
from engines.gang.order import RankOrder
from engines.gang.rank_link import SupervisorLink
from engines.gang.runner import StepRunner, StepTooLarge

logger = logging.getLogger(__name__)


class Rank:
    """Loads, then obeys in order. A step that fails is told to the supervisor, who then asks all
    ranks to join again or hangs up; any other failure ends the rank."""

    def __init__(
        self, link: SupervisorLink, rank: int, *, host: str = "", model_digest: str = ""
    ) -> None:
        self._link = link
        self._rank = rank
        self._host = host
        self._model_digest = model_digest

    def serve(self, load: Callable[[str], StepRunner]) -> int:
        """Returns the exit code. `load` is given the place where the ranks meet."""
        try:
            messages = self._link.messages()
            match next(messages, None):
                case Join(rendezvous=rendezvous):
                    runner = load(rendezvous)
                case None:
                    return 0
                case other:
                    raise ValueError(f"a rank's first message is Join, not {type(other).__name__}")
            self._link.send(self._ready())
            for message in messages:
                self._obey(message, runner)
        except Exception as error:
            logger.exception("rank failed")
            self._link.send(StepFailed(step_id=0, rank=self._rank, error=_told(error)))
            return 1
        return 0

    def _obey(self, message: ToRank, runner: StepRunner) -> None:
        match message:
            case Open():
                runner.open(message)
            case Close(sequence_id=sequence_id):
                runner.close(sequence_id)
                self._link.send(Closed(rank=self._rank, sequence_id=sequence_id))
            case Join(rendezvous=rendezvous):
                runner.join(rendezvous)
                self._link.send(self._ready())
            case Prefill() | Encode() | Ask() | Fork() | Decode():
                self._run(message, runner)

    def _run(self, step: Step, runner: StepRunner) -> None:
        try:
            self._link.send(runner.run(step, self._link.is_cancelled))
            return
        except Exception as error:
            logger.exception("step failed", extra={"step_id": step.step_id})
            failed = StepFailed(
                step_id=step.step_id,
                rank=self._rank,
                error=_told(error),
                too_large=isinstance(error, StepTooLarge),
            )
        # Only now: the error held the frames of the step, and they the memory it had taken.
        self._link.send(failed)
        runner.leave()

    def _ready(self) -> Ready:
        return Ready(
            rank=self._rank,
            peak_rss_bytes=_peak_rss_bytes(),
            offer=offer(self._host),
            model_digest=self._model_digest,
        )


def main(order: RankOrder) -> NoReturn:
    """Serve the supervisor until it says Stop or is gone. The process ends in here."""
    start_logging(order.rank)
    serve_and_exit(SupervisorLink.dial(order), order)


def serve_and_exit(link: SupervisorLink, order: RankOrder) -> NoReturn:
    """Always by os._exit: a gloo group that is not torn down by all ranks together can abort an
    interpreter that shuts down in order."""
    rank = Rank(link, order.rank, host=order.host, model_digest=order.model_digest)
    code = rank.serve(lambda rendezvous: _load(order, rendezvous))
    sys.stderr.flush()
    os._exit(code)


STANDARD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


class RankFormatter(logging.Formatter):
    """`time rank level logger: event key=value …`, the fields from `extra`."""

    def __init__(self, rank: int) -> None:
        super().__init__(f"%(asctime)s rank {rank} %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        fields = [f"{k}={v}" for k, v in vars(record).items() if k not in STANDARD_FIELDS]
        return " ".join([super().formatMessage(record), *fields])


def start_logging(rank: int) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(RankFormatter(rank))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)


def _load(order: RankOrder, rendezvous: str) -> StepRunner:
    from engines.gang.ring_runner import RingRunner

    return RingRunner.load(order, rendezvous)


def _told(error: Exception) -> str:
    return str(error) if isinstance(error, StepTooLarge) else f"{type(error).__name__}: {error}"


def _peak_rss_bytes() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
