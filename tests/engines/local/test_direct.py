"""Sockets between the ranks of one host."""

import threading
from collections.abc import Callable

import numpy as np
import pytest

from engines.local.direct import MAX_BYTES, DirectLinks, PeerLost


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


def on_threads(size: int, work: Callable[[DirectLinks, int], object]) -> list[object]:
    gathering, results = Gathering(size), list[object]([None] * size)

    def run(rank: int) -> None:
        links = DirectLinks.connect(gathering.of(rank), rank=rank, timeout_s=2.0)
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


@pytest.mark.parametrize("num_bytes", [1, 2345, MAX_BYTES])
def test_everybody_gets_everybodys_bytes_in_rank_order(num_bytes: int) -> None:
    wanted = [bytes([rank + 1]) * num_bytes for rank in range(3)]
    assert on_threads(3, lambda links, r: exchanged(links, r, 3, num_bytes)) == [wanted] * 3


def test_a_rank_that_hangs_up_is_noticed() -> None:
    def work(links: DirectLinks, rank: int) -> bool:
        if rank == 1:
            links.close()
            return True
        with pytest.raises(PeerLost, match="hung up"):
            exchanged(links, rank, 2, 100)
        return True

    assert on_threads(2, work) == [True, True]


def test_a_rank_that_says_nothing_is_given_up_after_the_timeout() -> None:
    done = threading.Event()

    def work(links: DirectLinks, rank: int) -> bool:
        if rank == 1:
            return done.wait(10)
        with pytest.raises(PeerLost, match="silent"):
            exchanged(links, rank, 2, 100)
        done.set()
        return True

    assert on_threads(2, work) == [True, True]


def test_a_message_that_could_block_both_sides_is_refused() -> None:
    def work(links: DirectLinks, rank: int) -> bool:
        with pytest.raises(ValueError, match="65536"):
            exchanged(links, rank, 2, MAX_BYTES + 1)
        return True

    assert on_threads(2, work) == [True, True]
