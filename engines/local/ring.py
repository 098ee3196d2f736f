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

from engines.local.device import CPU, backend_of
from engines.local.direct import DirectLinks
from engines.local.kernels.bf16 import Floats
from engines.local.mesh import HEADS_AXIS, RING_AXIS, HeadGroup, MeshPlace, build_mesh
from engines.local.passes import Stop
from engines.local.tiles import Accumulator, merge_gathered

LOOPBACK = "lo"


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
    """`size` ranks in a ring, this one at the place `rank`. A ring of one sends nothing.

    With `heads` every place is shared by several processes that have the heads of a layer among
    them: as many rings run side by side, and `world_rank` tells the processes apart. `device` is
    where this rank's keys and queries are.
    """

    def __init__(
        self,
        group: dist.ProcessGroup | None,
        *,
        rank: int,
        size: int,
        heads: HeadGroup | None = None,
        links: DirectLinks | None = None,
        device: torch.device = CPU,
    ) -> None:
        if size > 1 and group is None:
            raise ValueError("several ranks need a process group")
        self.rank = rank
        self.size = size
        self.heads = heads
        self.world_rank = rank if heads is None else rank * heads.size + heads.rank
        self.device = device
        self._group = group
        self._links = links

    @classmethod
    def connect(
        cls,
        init_method: str,
        *,
        rank: int,
        size: int,
        timeout_s: float,
        interface: str = LOOPBACK,
        device: torch.device = CPU,
    ) -> "RingGroup":
        """Join the default process group. Blocks until all ranks are there or `timeout_s`."""
        if size == 1:
            return cls(None, rank=rank, size=size, device=device)
        # Without a name gloo and NCCL resolve the host's own and may listen to the world.
        os.environ["GLOO_SOCKET_IFNAME"] = os.environ["NCCL_SOCKET_IFNAME"] = interface
        dist.init_process_group(
            backend_of(device),
            init_method=init_method,
            rank=rank,
            world_size=size,
            timeout=timedelta(seconds=timeout_s),
        )
        links = None
        if interface == LOOPBACK:
            links = DirectLinks.connect(_gathered_int, rank=rank, timeout_s=timeout_s)
        return cls(dist.group.WORLD, rank=rank, size=size, links=links, device=device)

    def shared(self, tensor_parallel: int) -> "RingGroup":
        """The same processes with `tensor_parallel` of them at each place of the ring.

        To be called once, on all ranks, on what `connect` returned. Raises ValueError if the
        ranks cannot be cut so.
        """
        place = MeshPlace(rank=self.rank, size=self.size, tensor_parallel=tensor_parallel)
        if tensor_parallel == 1:
            return self
        mesh = build_mesh(place, self.device.type)
        return RingGroup(
            mesh.get_group(RING_AXIS),
            rank=place.ring_rank,
            size=place.ring_size,
            heads=HeadGroup(mesh[HEADS_AXIS]),
            device=self.device,
        )

    def hang_up(self) -> None:
        """Leave peers that wait for this rank with an error. The group must not be used again."""
        if self._links is not None:
            self._links.close()
        self._links = self._group = None

    def leave(self) -> None:
        if self._links is not None:
            self._links.close()
        if self._group is not None:
            dist.destroy_process_group()

    def agreed(self, stop: Stop) -> Stop:
        """A wish to stop on which all processes of this place agree, for one step."""
        return stop if self.heads is None else self.heads.agreed(stop)

    def pass_on(self, buffer: Tensor, arriving_numel: int, distance: int = 1) -> Arriving:
        """Send `buffer` to the rank `distance` places on, while that of the rank as far back
        comes in, in the same dtype.

        `buffer` must not change before `Arriving.wait` returns. All ranks must call this in the
        same order: messages of one pair are told apart by nothing else.
        """
        arriving = buffer.new_empty(arriving_numel)
        to, back = (self.rank + distance) % self.size, (self.rank - distance) % self.size
        works = dist.batch_isend_irecv(
            [
                dist.P2POp(dist.isend, buffer, group=self._group, group_peer=to),
                dist.P2POp(dist.irecv, arriving, group=self._group, group_peer=back),
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
        flat_X = partial.flat_X
        if flat_X is None:
            flat_X = torch.cat(
                [
                    partial.out_HTD.reshape(-1),
                    partial.lse_HT.reshape(-1),
                    partial.lse_HT.new_zeros(1),
                ]
            )
        if stop:
            flat_X[-1] = 1.0
        out_HTD, lse_HT, wants_stop = merge_gathered(self.gather(flat_X), partial.out_HTD.shape)
        if wants_stop:
            raise StepAborted
        return out_HTD, lse_HT

    def gather(self, mine_X: Tensor) -> Tensor:
        """[N, X] from every rank's [X], in rank order."""
        if self.size == 1:
            return mine_X[None]
        mine_X = mine_X.contiguous()
        gathered_NX = mine_X.new_empty(self.size, mine_X.numel())
        if self._links is not None and self.is_near(mine_X.nbytes) and not mine_X.is_cuda:
            self._links.exchange(mine_X.numpy().view("uint8"), gathered_NX.numpy().view("uint8"))
        else:
            dist.all_gather_single(gathered_NX.view(-1), mine_X, group=self._group)
        return gathered_NX

    def is_near(self, num_bytes: int = 0) -> bool:
        """Whether the ring is one host, so that messages of this length take microseconds."""
        if self.size == 1:
            return True
        return self._links is not None and num_bytes <= self._links.max_bytes

    def gather_floats(self, mine_X: Floats, everybody_NX: Floats) -> Floats:
        """`gather` for kernels: fills `everybody_NX`, or returns `mine_X` itself, seen as [1, X],
        on a ring of one."""
        if self.size == 1:
            return mine_X[None]
        if self._links is not None and self.is_near(mine_X.nbytes):
            self._links.exchange(mine_X.view("uint8"), everybody_NX.view("uint8"))
        else:
            everybody = torch.from_numpy(everybody_NX).view(-1)
            dist.all_gather_single(everybody, torch.from_numpy(mine_X), group=self._group)
        return everybody_NX

    def tell_all(self, values: Tensor) -> Tensor:
        """World rank 0's `values` in every process; the others' may be overwritten."""
        if self._links is not None:
            return self.gather(values.reshape(-1))[0].view(values.shape)
        if self.size > 1 or self.heads is not None:
            dist.broadcast(values, src=0)
        return values


def _gathered_int(value: int) -> list[int]:
    """One number of every rank of the world, over gloo."""
    mine = torch.tensor([value])
    everybody = mine.new_empty(dist.get_world_size())
    dist.all_gather_single(everybody, mine)
    return everybody.tolist()
