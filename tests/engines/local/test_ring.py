"""The ring's exchanges, with every rank late at random."""

import random
import time

import pytest
import torch

from engines.local.ring import Arriving, RingGroup, StepAborted
from engines.local.tiles import Accumulator
from tests.engines.local.ranks import on_ranks

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(240)]

ROUNDS = 60


def letter(rank: int, round_number: int, turn: int, numel: int) -> torch.Tensor:
    return torch.full((numel,), float(rank * 10_000 + round_number * 10 + turn))


def stormy(group: RingGroup) -> list[str]:
    """Many exchanges on the way at once; every rank sleeps when it likes, and waits in the order
    that it likes. Returns what arrived wrong."""
    plan, whims = random.Random(0), random.Random(group.rank + 1)
    wrong: list[str] = []

    def dawdle() -> None:
        time.sleep(whims.random() * whims.choice((0.0, 0.0, 0.002, 0.012)))

    for round_number in range(ROUNDS):
        on_the_way: list[tuple[str, Arriving, torch.Tensor]] = []
        for turn in range(plan.randint(1, 5)):
            distance = plan.choice((-3, -2, -1, 1, 2, 3))
            if distance % group.size == 0:
                continue
            numel = plan.choice((1, 7, 1000, 300_000))
            dawdle()
            arriving = group.pass_on(
                letter(group.rank, round_number, turn, numel), numel, distance=distance
            )
            sender = (group.rank - distance) % group.size
            expected = letter(sender, round_number, turn, numel)
            on_the_way.append((f"{round_number}/{turn} by {distance}", arriving, expected))
        whims.shuffle(on_the_way)
        for name, arriving, expected in on_the_way:
            dawdle()
            if not torch.equal(arriving.wait(), expected):
                wrong.append(name)
        told = group.tell_all(letter(group.rank, round_number, 0, 3))
        if not torch.equal(told, letter(0, round_number, 0, 3)):
            wrong.append(f"{round_number} told")
        dawdle()
        gathered = group.gather(letter(group.rank, round_number, 1, 5))
        senders = [letter(rank, round_number, 1, 5) for rank in range(group.size)]
        if not torch.equal(gathered, torch.stack(senders)):
            wrong.append(f"{round_number} gathered")
    return wrong


@pytest.mark.parametrize("num_ranks", [2, 4])
def test_late_ranks_neither_hang_nor_mix_up_messages(num_ranks: int) -> None:
    assert on_ranks(num_ranks, stormy) == [[]] * num_ranks


def merged(group: RingGroup) -> list[list[float]]:
    """Rank 0 saw scores of about -1e4 only, rank 1 of about 1e4, rank 2 none at all."""
    lse = (-1e4, 1e4, float("-inf"))[group.rank]
    out_HTD = torch.full((2, 3, 4), float(group.rank + 1) if group.rank < 2 else 0.0)
    out_HTD, lse_HT = group.merge(Accumulator(out_HTD, torch.full((2, 3), lse)), stop=False)
    return [out_HTD.flatten().tolist(), lse_HT.flatten().tolist()]


def test_a_merge_of_far_apart_scores_is_neither_nan_nor_infinite() -> None:
    for out, lse in on_ranks(3, merged):
        assert out == [2.0] * 24
        assert lse == [1e4] * 6


def stopped(group: RingGroup) -> bool:
    partial = Accumulator(torch.ones(1, 1, 2), torch.zeros(1, 1))
    with pytest.raises(StepAborted):
        group.merge(partial, stop=group.rank == 1)
    return bool((group.merge(partial, stop=False)[0] == 1.0).all())


def test_one_wish_to_stop_stops_all_and_the_group_goes_on() -> None:
    assert on_ranks(3, stopped) == [True] * 3


def test_several_ranks_without_a_process_group_are_a_mistake() -> None:
    with pytest.raises(ValueError, match="process group"):
        RingGroup(None, rank=0, size=2)
