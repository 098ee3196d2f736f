"""An executor whose ring can be left and joined again, and whose last step can be undone.

Knows what a step changes in a sequence; does not know how steps are computed.
"""

import gc
import os
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist

from engines.config import EngineConfig
from engines.gang.messages import Decode, Open, Prefill, Step, StepDone
from engines.gang.order import RankOrder
from engines.local.device import device_of
from engines.local.executor import Executor
from engines.local.placement import Shares
from engines.local.ring import RingGroup
from engines.local.sequences import OpenSequence

MakeExecutor = Callable[[EngineConfig, RingGroup], Executor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """This rank's place in a ring, wherever the ring meets."""

    rank: int
    size: int
    tensor_parallel: int
    timeout_s: float
    interface: str
    device: torch.device

    @classmethod
    def of(cls, order: RankOrder) -> "Membership":
        """Raises EngineRefused when this rank has no device."""
        config = order.config
        return cls(
            rank=order.rank,
            size=config.ranks,
            tensor_parallel=config.tensor_parallel,
            timeout_s=config.step_timeout_s,
            interface=order.interface,
            device=device_of(config.device, order.local_rank),
        )

    def join(self, rendezvous: str) -> RingGroup:
        # Under torchrun, torch would take any tcp:// meeting for a store of torchrun's agent.
        os.environ.pop("TORCHELASTIC_USE_AGENT_STORE", None)
        ring = RingGroup.connect(
            rendezvous,
            rank=self.rank,
            size=self.size,
            timeout_s=self.timeout_s,
            interface=self.interface,
            device=self.device,
        )
        return ring.shared(self.tensor_parallel)


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """What a sequence was before a step; the tokens of its KV beyond `shares` are overwritten."""

    sequence: OpenSequence
    shares: Shares
    stop: int
    num_generated: int

    @classmethod
    def of(cls, sequence: OpenSequence) -> "Before":
        return cls(
            sequence=sequence,
            shares=sequence.kv.shares,
            stop=sequence.kv.stop,
            num_generated=len(sequence.generated),
        )

    def restore(self) -> None:
        kv = self.sequence.kv
        kv.shares, kv.stop = self.shares, self.stop
        del self.sequence.generated[self.num_generated :]


class RingRunner:
    """The StepRunner of a real rank."""

    def __init__(self, executor: Executor, ring: RingGroup, membership: Membership) -> None:
        self._executor = executor
        self._ring = ring
        self._membership = membership
        self._before: list[Before] = []

    @classmethod
    def load(
        cls, order: RankOrder, rendezvous: str, make: MakeExecutor = Executor.load
    ) -> "RingRunner":
        """Join the ring, then load the model. Raises EngineRefused and what connecting raises."""
        config = order.config
        torch.set_num_threads(config.threads_per_rank)
        membership = Membership.of(order)
        ring = membership.join(rendezvous)
        return cls(make(config, ring), ring, membership)

    def open(self, message: Open) -> None:
        self._executor.open(message)

    def run(self, step: Step, cancelled: Callable[[int], bool]) -> StepDone:
        self._before = [Before.of(sequence) for sequence in self._touched(step)]
        return self._executor.run(step, cancelled)

    def close(self, sequence_id: int) -> None:
        self._executor.close(sequence_id)

    def leave(self) -> None:
        """gloo hangs up when the last reference to the group goes, so none may linger: neither
        in the ring, which the executor shares, nor in the frames of the failed step."""
        self._ring.hang_up()
        gc.collect()
        if dist.is_initialized():
            dist.destroy_process_group()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def join(self, rendezvous: str) -> None:
        self.leave()
        vars(self._ring).update(vars(self._membership.join(rendezvous)))
        for before in self._before:
            before.restore()
        self._before = []

    def _touched(self, step: Step) -> list[OpenSequence]:
        match step:
            case Decode(sequence_ids=ids):
                return [s for i in ids if (s := self._executor.sequences.get(i))]
            case Prefill(sequence_id=id_):
                return [s for i in (id_,) if (s := self._executor.sequences.get(i))]
        return []
