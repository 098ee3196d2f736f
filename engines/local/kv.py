"""Where keys and values lie on one rank: a buffer per layer, allocated once.

Knows offsets and the runs that ranks hold; does not know attention.

Shapes: G key heads, T new tokens, S stored tokens, D head dim. Suffix order is dim order.
"""

from torch import Tensor

from engines.local.placement import Shares, joined, num_tokens


class KvStore:
    """Keys and values of one sequence on this rank: per layer [2, G, capacity, D].

    A layer's buffer is made at its first write, in the dtype and on the device of what is
    written. Capacity is a promise, not a limit: a sequence that outgrows it is moved once.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._layers: dict[int, Tensor] = {}

    def write(self, layer: int, at: int, k_GTD: Tensor, v_GTD: Tensor) -> None:
        """Store T tokens from offset `at`. T = 0 stores nothing."""
        if k_GTD.shape[1] == 0:
            return
        stop = at + k_GTD.shape[1]
        kv_2GSD = self._room(layer, k_GTD, stop)
        kv_2GSD[0, :, at:stop] = k_GTD
        kv_2GSD[1, :, at:stop] = v_GTD

    def read(self, layer: int, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Views (k_GSD, v_GSD) of [start, stop); nothing may have been written to the layer only
        if the range is empty, and then the caller must not read."""
        kv_2GSD = self._layers[layer]
        return kv_2GSD[0, :, start:stop], kv_2GSD[1, :, start:stop]

    def copy(self) -> "KvStore":
        """Another store with the same contents and capacity."""
        copied = KvStore(self.capacity)
        copied._layers = {layer: kv_2GSD.clone() for layer, kv_2GSD in self._layers.items()}
        return copied

    def _room(self, layer: int, like_GTD: Tensor, stop: int) -> Tensor:
        kv_2GSD = self._layers.get(layer)
        if kv_2GSD is not None and kv_2GSD.shape[2] >= stop:
            return kv_2GSD
        num_heads, _, head_dim = like_GTD.shape
        if stop > self.capacity:
            self.capacity = stop + stop // 4
        room_2GSD = like_GTD.new_empty(2, num_heads, self.capacity, head_dim)
        if kv_2GSD is not None:
            room_2GSD[:, :, : kv_2GSD.shape[2]] = kv_2GSD
        self._layers[layer] = room_2GSD
        return room_2GSD


class ShardedKv:
    """The KV of a growing range of positions, spread over all ranks; this rank's part is stored.

    `shares` says what every rank holds. A forward pass writes behind it, layer by layer, and
    `commit` makes that count; what an aborted pass wrote is overwritten by the next.
    """

    def __init__(self, *, rank: int, num_ranks: int, capacity: int) -> None:
        self.rank = rank
        self.shares: Shares = ((),) * num_ranks
        self.stop = 0
        self.store = KvStore(capacity)

    def copy(self) -> "ShardedKv":
        copied = ShardedKv(rank=self.rank, num_ranks=len(self.shares), capacity=0)
        copied.shares, copied.stop, copied.store = self.shares, self.stop, self.store.copy()
        return copied

    def ahead(self, new: Shares) -> "ShardedKv":
        """As this will be after `commit(new)`, in the same memory."""
        later = ShardedKv(rank=self.rank, num_ranks=len(self.shares), capacity=0)
        later.shares, later.stop, later.store = self.shares, self.stop, self.store
        later.commit(new)
        return later

    @property
    def num_held(self) -> int:
        return num_tokens(self.shares[self.rank])

    def after(self, new: Shares) -> Shares:
        return tuple(joined(held, more) for held, more in zip(self.shares, new, strict=True))

    def commit(self, new: Shares) -> None:
        self.shares = self.after(new)
        self.stop += sum(num_tokens(runs) for runs in new)


def shard_capacity(total_tokens: int, num_ranks: int, num_steps: int) -> int:
    """Tokens that one of N ranks may come to hold of `total_tokens` dealt in `num_steps` steps.

    Each step may give a rank up to two tokens more than its even share, and the last page of
    decoded tokens may be its own.
    """
    return -(-total_tokens // num_ranks) + 2 * num_steps + 32
