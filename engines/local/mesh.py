"""The two axes of a gang: ranks that share the heads of a layer, and the ring across them.

Knows process ranks and what the ranks of one place must agree on; does not know attention.

    world rank = place on the ring x tensor_parallel + share of the heads

            heads 0   heads 1
    place 0    0         1       <- one model, cut by transformers' tensor-parallel plan
    place 1    2         3
               ^ ring 0  ^ ring 1
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

RING_AXIS = "ring"
HEADS_AXIS = "heads"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshPlace:
    """Where one of `size` processes stands. Ranks of one place belong on one node."""

    rank: int
    size: int
    tensor_parallel: int = 1

    def __post_init__(self) -> None:
        if self.tensor_parallel < 1 or self.size % self.tensor_parallel:
            raise ValueError(
                f"{self.size} ranks cannot be cut in groups of {self.tensor_parallel} "
                "(tensor_parallel): use a multiple"
            )

    @property
    def ring_rank(self) -> int:
        return self.rank // self.tensor_parallel

    @property
    def ring_size(self) -> int:
        return self.size // self.tensor_parallel


class HeadGroup:
    """The ranks of one place on the ring, each with its share of every layer's heads."""

    def __init__(self, mesh: DeviceMesh) -> None:
        self.mesh = mesh
        self.rank: int = mesh.get_local_rank()
        self.size = mesh.size()
        self._group = mesh.get_group()

    def agreed(self, stop: Callable[[], bool]) -> Callable[[], bool]:
        """A `stop` that answers alike on all ranks of the place, for one forward step.

        It says what was true on one of them a layer earlier, so that nobody waits for the answer.
        The ranks must ask it equally often.
        """
        return _AgreedStop(stop, self._group)

    def highest(self, values: Tensor) -> Tensor:
        """The elementwise maximum over the place, in place."""
        dist.all_reduce(values, dist.ReduceOp.MAX, group=self._group)
        return values

    def mean(self, values: Tensor) -> Tensor:
        """The elementwise mean over the place, in place."""
        dist.all_reduce(values, group=self._group)
        return values.div_(self.size)


class _AgreedStop:
    def __init__(self, stop: Callable[[], bool], group: dist.ProcessGroup) -> None:
        self._stop = stop
        self._group = group
        self._asked: tuple[dist.Work, Tensor] | None = None

    def __call__(self) -> bool:
        heard = False
        if self._asked is not None:
            work, flag = self._asked
            work.wait()
            heard = bool(flag)
        flag = torch.tensor(int(self._stop()), dtype=torch.int32)
        work = dist.all_reduce(flag, dist.ReduceOp.MAX, group=self._group, async_op=True)
        assert work is not None
        self._asked = work, flag
        return heard


def build_mesh(place: MeshPlace, device_type: str) -> DeviceMesh:
    """The mesh of all processes; the default process group must be up. Blocks for all of them."""
    return init_device_mesh(
        device_type,
        (place.ring_size, place.tensor_parallel),
        mesh_dim_names=(RING_AXIS, HEADS_AXIS),
    )
