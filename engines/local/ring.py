"""The process group as attention uses it: pass on, merge, tell all; knows no models.

Every exchange carries each rank's wish to stop, so that all ranks leave a step after the same
layer without an extra message.

Shapes: N ranks, H query heads, T query rows, D head dim. Suffix order is dim order.
"""

import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from engines.local.tiles import Accumulator, merge_stacked


class StepAborted(Exception):
    """A cancel was seen; every rank of the step raises this after the same layer."""


class Arriving:
    """A buffer on its way from the previous rank; `wait` ends the exchange both ways."""

    def __init__(self, buffer: Tensor, sent: Tensor, works: list[dist.Work]) -> None:
        self._buffer = buffer
        self._sent = sent  # gloo reads it until the exchange is over
        self._works = works

    def wait(self) -> Tensor:
        for work in self._works:
            work.wait()
        return self._buffer


class RingGroup:
    """`size` ranks in a ring. With size 1 there is no process group and nothing is sent."""

    def __init__(self, group: dist.ProcessGroup | None, *, rank: int, size: int) -> None:
        if size > 1 and group is None:
            raise ValueError("several ranks need a process group")
        self.rank = rank
        self.size = size
        self._group = group

    @classmethod
    def connect(
        cls,
        init_method: str,
        *,
        rank: int,
        size: int,
        timeout_s: float,
        backend: str = "gloo",
        interface: str = "lo",
    ) -> "RingGroup":
        """Join the default process group. Blocks until all ranks are there or `timeout_s`."""
        if size == 1:
            return cls(None, rank=rank, size=size)
        # Without a name gloo resolves the host's own and may listen to the world.
        os.environ["GLOO_SOCKET_IFNAME"] = interface
        dist.init_process_group(
            backend,
            init_method=init_method,
            rank=rank,
            world_size=size,
            timeout=timedelta(seconds=timeout_s),
        )
        return cls(dist.group.WORLD, rank=rank, size=size)

    def leave(self) -> None:
        if self._group is not None:
            dist.destroy_process_group(self._group)

    def pass_on(self, buffer: Tensor, arriving_numel: int) -> Arriving:
        """Send `buffer` to the next rank while the previous rank's comes in.

        `buffer` must not change before `Arriving.wait` returns.
        """
        arriving = buffer.new_empty(arriving_numel)
        works = dist.batch_isend_irecv(
            [
                dist.P2POp(
                    dist.isend, buffer, group=self._group, group_peer=(self.rank + 1) % self.size
                ),
                dist.P2POp(
                    dist.irecv, arriving, group=self._group, group_peer=(self.rank - 1) % self.size
                ),
            ]
        )
        return Arriving(arriving, buffer, works)

    def merge(self, partial: Accumulator, *, stop: bool) -> tuple[Tensor, Tensor]:
        """Merge each rank's result over its own keys: (out_HTD, lse_HT), equal on all ranks.

        Raises StepAborted on every rank if `stop` was true on one.
        """
        if self.size == 1:
            if stop:
                raise StepAborted
            return partial.out_HTD, partial.lse_HT
        size = partial.out_HTD.numel()
        gathered_NX = self.gather(
            torch.cat(
                [
                    partial.out_HTD.reshape(-1),
                    partial.lse_HT.reshape(-1),
                    partial.lse_HT.new_tensor([float(stop)]),
                ]
            )
        )
        if bool(gathered_NX[:, -1].any()):
            raise StepAborted
        return merge_stacked(
            gathered_NX[:, :size].view(self.size, *partial.out_HTD.shape),
            gathered_NX[:, size:-1].view(self.size, *partial.lse_HT.shape),
        )

    def gather(self, mine_X: Tensor) -> Tensor:
        """[N, X] from every rank's [X], in rank order."""
        if self.size == 1:
            return mine_X[None]
        gathered = mine_X.new_empty(self.size * mine_X.numel())
        dist.all_gather_single(gathered, mine_X.contiguous(), group=self._group)
        return gathered.view(self.size, -1)

    def tell_all(self, values: Tensor) -> Tensor:
        """Rank 0's `values` on every rank; the others' are overwritten in place."""
        if self.size > 1:
            dist.broadcast(values, group=self._group, group_src=0)
        return values
