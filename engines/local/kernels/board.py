"""Swaps small messages through memory that several processes map.

Knows flat arrays and how stores of one core become seen by another; does not know ranks' sockets
or how long to wait.

Shapes: N ranks, B bytes of a message.

    numbers   one 64-bit word per rank, a cache line apart: how many messages it has published
    slots     [2, N, SLOT]: message m of a rank lies in slots[m % 2, rank]

Two slots are enough. A rank publishes message m + 2 only after it has read everybody's m + 1, and
who published that had read everybody's m before.
"""

from typing import Any, cast

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from engines.local.kernels.bf16 import compiled

Bytes = NDArray[np.uint8]
Numbers = NDArray[np.int64]

WORDS_APART = 8
"""int64 words from one rank's number to the next: ranks that write share no cache line."""


def _address(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    return builder.gep(context.make_array(array_type)(context, builder, array).data, [index])


@intrinsic
def _acquired(typing_context: Any, numbers: Any, index: Any) -> Any:
    """The number; what was stored before it was released is seen by whoever sees it."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address = _address(context, builder, signature.args[0], *args)
        return builder.load_atomic(address, "acquire", 8, typ=ir.IntType(64))

    return types.int64(numbers, types.intp), build


@intrinsic
def _released(typing_context: Any, numbers: Any, index: Any, value: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address = _address(context, builder, signature.args[0], *args[:2])
        builder.store_atomic(args[2], address, "release", 8)
        return context.get_dummy_value()

    return types.void(numbers, types.intp, types.int64), build


acquired = cast("Any", _acquired)
released = cast("Any", _released)


@compiled()
def swap(  # noqa: PLR0913
    numbers: Numbers, slots_2NB: Bytes, mine_B: Bytes, rank: int, number: int, looks: int,
    everybody_NB: Bytes,
) -> int:  # fmt: skip
    """Publish this rank's message `number`, then `collect` from the first rank on."""
    slot_B = slots_2NB[number % 2, rank]
    for b in range(mine_B.shape[0]):
        slot_B[b] = mine_B[b]
    released(numbers, rank * WORDS_APART, number)
    return collect(numbers, slots_2NB, 0, number, looks, everybody_NB)


@compiled()
def collect(
    numbers: Numbers, slots_2NB: Bytes, first: int, number: int, looks: int, everybody_NB: Bytes
) -> int:
    """Copy message `number` of the ranks from `first` on; returns the first that has not come
    after so many looks, or N."""
    for rank in range(first, everybody_NB.shape[0]):
        look = 0
        while acquired(numbers, rank * WORDS_APART) < number:
            look += 1
            if look >= looks:
                return rank
        row_B, slot_B = everybody_NB[rank], slots_2NB[number % 2, rank]
        for b in range(row_B.shape[0]):
            row_B[b] = slot_B[b]
    return int(everybody_NB.shape[0])
