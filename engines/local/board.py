"""Memory that the ranks of one host share, for exchanges of some kilobytes between them.

Knows how ranks come to map the same memory and in which order they use it; does not know what to
do when a rank does not come. A swap of 2 kB between two running ranks takes 3 us, over their
sockets it took 45.
"""

import mmap
import os
import secrets
from collections.abc import Callable, Sequence

import numpy as np

from engines.local.kernels.board import WORDS_APART, Bytes, collect, swap

SLOT_BYTES = 1 << 20
"""The longest message. Memory is taken only for what was ever written."""

LOOKS = 20_000
"""At a peer's number before a swap is called late: some 40 us."""

PAGE_BYTES = 4096

Gather = Callable[[int], Sequence[int]]
"""One integer of every rank, in rank order, by whatever connects them already."""


class Board:
    """All ranks must call `swap` in the same order, each with messages of one length."""

    def __init__(self, memory: mmap.mmap, rank: int, size: int) -> None:
        words = np.frombuffer(memory, np.int64, size * WORDS_APART, 0)
        slots = np.frombuffer(memory, np.uint8, 2 * size * SLOT_BYTES, _header_bytes(size))
        self._numbers = words
        self._slots_2NB: Bytes = slots.reshape(2, size, SLOT_BYTES)
        self._rank = rank
        self._number = 0

    @classmethod
    def connect(cls, gather: Gather, *, rank: int, size: int) -> "Board | None":
        """Map what rank 0 made, unless a rank of the world cannot: then all get None.

        No name exists that others could open or that a crash could leave behind: peers find the
        memory by rank 0's descriptor, and see by a secret in it that it is the right one.
        """
        secret = secrets.randbits(62)
        file = _made(size, secret) if rank == 0 else None
        try:
            process, descriptor = gather(os.getpid())[0], gather(-1 if file is None else file)[0]
            told = gather(secret)[0]
            memory = _mapped(f"/proc/{process}/fd/{descriptor}", size, told)
            is_there = gather(int(memory is not None))
        finally:
            if file is not None:
                os.close(file)
        return cls(memory, rank, size) if memory is not None and all(is_there) else None

    def swap(self, mine_B: Bytes, everybody_NB: Bytes) -> int:
        """Publish a message and collect everybody's. Returns N, or the first rank that is late:
        then `collect` from there, until it returns N."""
        self._number += 1
        return swap(
            self._numbers,
            self._slots_2NB,
            mine_B,
            self._rank,
            self._number,
            LOOKS,
            everybody_NB,
        )

    def collect(self, first: int, everybody_NB: Bytes) -> int:
        return collect(
            self._numbers, self._slots_2NB, first, self._number, LOOKS // 10, everybody_NB
        )


def _header_bytes(size: int) -> int:
    """Numbers and, behind them, the secret; whole pages, for slots lie on page boundaries."""
    needed = 8 * size * WORDS_APART + 8
    return -(-needed // PAGE_BYTES) * PAGE_BYTES


def _made(size: int, secret: int) -> int | None:
    """A descriptor of fresh memory, or None where the kernel has no such thing."""
    if not hasattr(os, "memfd_create"):
        return None
    file = os.memfd_create("ringway-board")
    os.ftruncate(file, _header_bytes(size) + 2 * size * SLOT_BYTES)
    os.pwrite(file, secret.to_bytes(8, "little"), 8 * size * WORDS_APART)
    return file


def _mapped(path: str, size: int, secret: int) -> mmap.mmap | None:
    """None if it is not ours to open, or another process goes by that number here."""
    try:
        file = os.open(path, os.O_RDWR)
    except OSError:
        return None
    try:
        memory = mmap.mmap(file, _header_bytes(size) + 2 * size * SLOT_BYTES)
    except (OSError, ValueError):
        return None
    finally:
        os.close(file)
    at = 8 * size * WORDS_APART
    return memory if memory[at : at + 8] == secret.to_bytes(8, "little") else None
