"""Exchanges of a real ring while its ranks dawdle at random: nothing hangs, nothing is mixed up."""

import time
from random import Random

import pytest

pytest.importorskip("torch")

import torch

from engines.local.ring import RingGroup
from tests.engines.local.ranks import on_ranks

NUM_ROUNDS = 30


def exchange(group: RingGroup, seed: int) -> int:
    """Every buffer says whose it is, of which round and step, and its size follows from those."""
    sizes, dawdle = Random(seed), Random(seed * 31 + group.rank)
    for number in range(NUM_ROUNDS):
        lengths = [sizes.choice((1, 3, 1_000, 70_000)) for _ in range(group.size)]
        travelling = torch.full((lengths[group.rank],), float(group.rank * 1_000 + number))
        for step in range(1, group.size):
            source = (group.rank - step) % group.size
            time.sleep(dawdle.choice((0.0, 0.0, 0.0, 0.004)))
            arriving = group.pass_on(travelling, lengths[source])
            time.sleep(dawdle.choice((0.0, 0.0, 0.0, 0.004)))
            travelling = arriving.wait()
            assert bool((travelling == source * 1_000 + number).all())
        gathered = group.gather(torch.tensor([float(group.rank), float(number)]))
        assert gathered.tolist() == [[float(rank), float(number)] for rank in range(group.size)]
    return NUM_ROUNDS


@pytest.mark.ranks
@pytest.mark.timeout(90)
@pytest.mark.parametrize("num_ranks", [2, 4])
def test_a_ring_of_dawdling_ranks_neither_hangs_nor_mixes_its_buffers(num_ranks: int) -> None:
    assert on_ranks(num_ranks, exchange, 7) == [NUM_ROUNDS] * num_ranks
