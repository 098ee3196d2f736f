"""Shared memory and sockets between the ranks of one host."""

import threading
from collections.abc import Callable

import numpy as np
import pytest

from engines.local.board import SLOT_BYTES, Board, Gather
from engines.local.direct import MAX_BYTES, DirectLinks, PeerLost, ShareMemory


class Gathering:
    """Stands for gloo: threads hand in a number each and get all of them."""

    def __init__(self, size: int) -> None:
        self._values = [0] * size
        self._barrier = threading.Barrier(size)

    def of(self, rank: int) -> Callable[[int], list[int]]:
        def gather(value: int) -> list[int]:
            self._values[rank] = value
            self._barrier.wait(10)
            values = list(self._values)
            self._barrier.wait(10)
            return values

        return gather


def no_memory(gather: Gather, *, rank: int, size: int) -> Board | None:
    return None


WAYS: list[ShareMemory] = [Board.connect, no_memory]


@pytest.fixture(scope="module", autouse=True)
def compiled_beforehand() -> None:
    """The first swap of a machine compiles for longer than the waits of these tests."""
    on_threads(1, lambda links, r: exchanged(links, r, 1, 1), Board.connect)


def on_threads(
    size: int, work: Callable[[DirectLinks, int], object], share: ShareMemory
) -> list[object]:
    gathering, results = Gathering(size), list[object]([None] * size)

    def run(rank: int) -> None:
        links = DirectLinks.connect(gathering.of(rank), rank=rank, timeout_s=2.0, share=share)
        try:
            results[rank] = work(links, rank)
        finally:
            links.close()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(15)
    return results


def exchanged(links: DirectLinks, rank: int, size: int, num_bytes: int) -> list[bytes]:
    table = np.zeros((size, num_bytes), np.uint8)
    links.exchange(np.full(num_bytes, rank + 1, np.uint8), table)
    return [row.tobytes() for row in table]


@pytest.mark.parametrize("share", WAYS)
@pytest.mark.parametrize("num_bytes", [1, 2345, MAX_BYTES])
def test_everybody_gets_everybodys_bytes_in_rank_order(num_bytes: int, share: ShareMemory) -> None:
    wanted = [bytes([rank + 1]) * num_bytes for rank in range(3)]
    got = on_threads(3, lambda links, r: exchanged(links, r, 3, num_bytes), share)
    assert got == [wanted] * 3


@pytest.mark.parametrize("share", WAYS)
def test_many_exchanges_in_a_row_mix_nothing_up(share: ShareMemory) -> None:
    def work(links: DirectLinks, rank: int) -> bool:
        got = np.empty((3, 2), np.int64)
        for number in range(2000):
            mine = np.array([rank, number])
            links.exchange(mine.view(np.uint8), got.view(np.uint8))
            if got.tolist() != [[0, number], [1, number], [2, number]]:
                return False
        return True

    assert on_threads(3, work, share) == [True] * 3


def test_ranks_of_one_host_do_share_memory() -> None:
    assert on_threads(2, lambda links, _: links.max_bytes, Board.connect) == [SLOT_BYTES] * 2


@pytest.mark.parametrize("share", WAYS)
def test_a_rank_that_hangs_up_is_noticed(share: ShareMemory) -> None:
    def work(links: DirectLinks, rank: int) -> bool:
        if rank == 1:
            links.close()
            return True
        with pytest.raises(PeerLost, match="hung up"):
            exchanged(links, rank, 2, 100)
        return True

    assert on_threads(2, work, share) == [True, True]


@pytest.mark.parametrize("share", WAYS)
def test_a_rank_that_says_nothing_is_given_up_after_the_timeout(share: ShareMemory) -> None:
    done = threading.Event()

    def work(links: DirectLinks, rank: int) -> bool:
        if rank == 1:
            return done.wait(10)
        with pytest.raises(PeerLost, match="silent"):
            exchanged(links, rank, 2, 100)
        done.set()
        return True

    assert on_threads(2, work, share) == [True, True]


@pytest.mark.parametrize(("share", "limit"), [(Board.connect, SLOT_BYTES), (no_memory, MAX_BYTES)])
def test_a_message_that_has_no_room_is_refused(share: ShareMemory, limit: int) -> None:
    def work(links: DirectLinks, rank: int) -> bool:
        with pytest.raises(ValueError, match=str(limit)):
            exchanged(links, rank, 2, limit + 1)
        return True

    assert on_threads(2, work, share) == [True, True]
