"""Runs a function on N rank processes of one gloo ring and brings back what each returned."""

import multiprocessing
import pickle
import tempfile
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar, cast

import torch

from engines.local.ring import RingGroup

P = ParamSpec("P")
R = TypeVar("R")

PRELOADED = ["torch", "transformers", "engines.local.executor", "tests.engines.local.families"]
"""Imported once in the fork server: a rank then starts in milliseconds, not seconds."""


class RankFailed(AssertionError):
    """A rank raised, died or did not answer in time."""


def on_ranks(
    num_ranks: int, job: Callable[Concatenate[RingGroup, P], R], *args: P.args, **kwargs: P.kwargs
) -> list[R]:
    """`job(group, *args)` on every rank; results in rank order. `job` is a module-level function.

    Raises RankFailed with the rank's traceback; nothing outlives the call.
    """
    return on_ranks_within(240.0, num_ranks, job, *args, **kwargs)


def on_ranks_within(
    limit_s: float,
    num_ranks: int,
    job: Callable[Concatenate[RingGroup, P], R],
    *args: P.args,
    **kwargs: P.kwargs,
) -> list[R]:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    with tempfile.TemporaryDirectory() as folder:
        ends = [context.Pipe(duplex=False) for _ in range(num_ranks)]
        processes = [
            context.Process(
                target=_rank_main,
                args=(f"file://{Path(folder) / 'store'}", rank, num_ranks, sender),
                kwargs={"body": pickle.dumps((job, args, kwargs))},
                daemon=True,
            )
            for rank, (_, sender) in enumerate(ends)
        ]
        for process in processes:
            process.start()
        for _, sender in ends:
            sender.close()
        try:
            deadline_s = time.monotonic() + limit_s
            return [
                cast(R, _result(rank, receiver, deadline_s))
                for rank, (receiver, _) in enumerate(ends)
            ]
        finally:
            for process in processes:
                process.join(timeout=2)
                if process.is_alive():
                    process.kill()
                    process.join()


def _result(rank: int, receiver: Connection, deadline_s: float) -> object:
    if not receiver.poll(max(0.0, deadline_s - time.monotonic())):
        raise RankFailed(f"rank {rank} did not answer in time")
    try:
        ok, value = receiver.recv()
    except EOFError:
        raise RankFailed(f"rank {rank} died without a word") from None
    if not ok:
        raise RankFailed(f"rank {rank} raised\n{value}")
    return cast(object, value)


def _rank_main(
    init_method: str, rank: int, num_ranks: int, sender: Connection, body: bytes
) -> None:
    try:
        torch.set_num_threads(1)
        job, args, kwargs = pickle.loads(body)
        group = RingGroup.connect(init_method, rank=rank, size=num_ranks, timeout_s=120)
        sender.send((True, job(group, *args, **kwargs)))
        group.leave()
    except BaseException:
        sender.send((False, traceback.format_exc()))
        raise
