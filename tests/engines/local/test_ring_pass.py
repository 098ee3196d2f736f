"""One layer of a ring pass on random numbers: exact either way, and no more sent than is seen."""

import random
import time
from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from engines.local.device import CPU
from engines.local.hook import LayerCall
from engines.local.kv import ShardedKv
from engines.local.placement import positions_of, zigzag
from engines.local.ring import Arriving, RingGroup, StepAborted
from engines.local.ring_pass import RingPass
from engines.local.travel import TravelRule
from tests.engines.local.ranks import on_ranks

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(240)]

HEADS, KEY_HEADS, HEAD_DIM, SCALE = 6, 2, 16, 0.25
EDGES = (0, 97, 128, 300)
KEYS, QUERIES, RULE = TravelRule(keys_from=0.0), TravelRule(keys_from=1e9), TravelRule()
RULES = {"keys": KEYS, "queries": QUERIES, "by the rule": RULE}
WINDOWS = (None, 5, 60)


class CountingRing(RingGroup):
    """Notes how many numbers each message has."""

    def __init__(self, group: RingGroup) -> None:
        super().__init__(group._group, rank=group.rank, size=group.size)
        self.sent: list[int] = []

    def pass_on(self, buffer: Tensor, arriving_numel: int, distance: int = 1) -> Arriving:
        self.sent.append(buffer.numel())
        return super().pass_on(buffer, arriving_numel, distance)


def numbers(num_heads: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(num_heads, EDGES[-1], HEAD_DIM, generator=generator)


def call_for(positions: list[int], window: int | None, device: torch.device = CPU) -> LayerCall:
    return LayerCall(
        layer=0,
        q_HTD=numbers(HEADS, 1)[:, positions].to(device),
        k_GTD=numbers(KEY_HEADS, 2)[:, positions].to(device),
        v_GTD=numbers(KEY_HEADS, 3)[:, positions].to(device),
        scale=SCALE,
        window=window,
    )


def dense(window: int | None) -> tuple[Tensor, Tensor]:
    k, v = (numbers(KEY_HEADS, s).double().repeat_interleave(3, 0) for s in (2, 3))
    scores = SCALE * numbers(HEADS, 1).double() @ k.transpose(1, 2)
    distance = torch.arange(EDGES[-1])[:, None] - torch.arange(EDGES[-1])[None]
    seen = distance >= 0 if window is None else (distance >= 0) & (distance < window)
    scores = scores.masked_fill(~seen, float("-inf"))
    return scores.softmax(-1) @ v, scores.logsumexp(-1)


def chunk_by_chunk(
    group: RingGroup, window: int | None, rule: TravelRule, stop: Callable[[], bool]
) -> float:
    """The largest error of this rank's rows, out and lse."""
    wanted_out, wanted_lse = dense(window)
    kv = ShardedKv(rank=group.rank, num_ranks=group.size, capacity=EDGES[-1])
    worst = 0.0
    for start, end in pairwise(EDGES):
        new = zigzag(start, end, group.size)
        rows = positions_of(new[group.rank])
        out, lse = RingPass(kv, new, group, stop, rule).attend(call_for(rows, window))
        kv.commit(new)
        worst = max(worst, float((out - wanted_out[:, rows]).abs().max()))
        worst = max(worst, float((lse - wanted_lse[:, rows]).abs().max()))
    return worst


def errors(group: RingGroup) -> dict[tuple[str, int | None], float]:
    return {
        (name, window): chunk_by_chunk(group, window, rule, lambda: False)
        for name, rule in RULES.items()
        for window in WINDOWS
    }


@pytest.mark.parametrize("num_ranks", [1, 2, 3, 4])
def test_keys_or_queries_on_the_way_the_attention_is_exact(num_ranks: int) -> None:
    for by_case in on_ranks(num_ranks, errors):
        assert max(by_case.values()) < 1e-5, by_case


def turn_times(group: RingGroup) -> dict[str, tuple[float, list[float]]]:
    """By what travels: seconds of two layers, and those of each turn."""
    found = {}
    for name, rule in RULES.items():
        kv = ShardedKv(rank=group.rank, num_ranks=group.size, capacity=EDGES[-1])
        new = zigzag(EDGES[0], EDGES[1], group.size)
        attending = RingPass(kv, new, group, lambda: False, rule)
        began_s = time.perf_counter()
        for _ in range(2):
            attending.attend(call_for(positions_of(new[group.rank]), None))
        found[name] = (time.perf_counter() - began_s, attending.turns_s)
    return found


@pytest.mark.parametrize("num_ranks", [1, 3])
def test_turns_are_timed_over_all_layers(num_ranks: int) -> None:
    for found in on_ranks(num_ranks, turn_times):
        for seconds, turns_s in found.values():
            assert len(turns_s) == (num_ranks if num_ranks > 1 else 0)
            assert all(one > 0 for one in turns_s)
            assert sum(turns_s) <= seconds


def late_errors(group: RingGroup) -> float:
    whims = random.Random(group.rank)

    def dawdle() -> bool:
        time.sleep(whims.random() * whims.choice((0.0, 0.002, 0.02)))
        return False

    cases = [(window, rule) for rule in (KEYS, QUERIES) for window in WINDOWS] * 4
    return max(chunk_by_chunk(group, window, rule, dawdle) for window, rule in cases)


def test_ranks_that_are_late_at_random_neither_hang_nor_mix_up_buffers() -> None:
    assert max(on_ranks(4, late_errors)) < 1e-5


# What is on the way.


def numbers_sent(group: RingGroup, window: int | None, rule: TravelRule) -> list[int]:
    """By this rank, for the last chunk."""
    counting = CountingRing(group)
    kv = ShardedKv(rank=group.rank, num_ranks=group.size, capacity=EDGES[-1])
    for start, end in pairwise(EDGES):
        counting.sent.clear()
        new = zigzag(start, end, group.size)
        rows = positions_of(new[group.rank])
        RingPass(kv, new, counting, lambda: False, rule).attend(call_for(rows, window))
        kv.commit(new)
    return counting.sent


def test_keys_and_values_travel_in_one_buffer_a_turn() -> None:
    sent = on_ranks(2, numbers_sent, None, KEYS)
    assert [len(one) for one in sent] == [1, 1]
    per_token = 2 * KEY_HEADS * HEAD_DIM
    assert sum(one[0] - 1 for one in sent) == per_token * EDGES[-1]


def test_keys_behind_every_window_stay_at_home() -> None:
    sent = on_ranks(2, numbers_sent, 5, KEYS)
    visible = EDGES[-1] - EDGES[-2] + 4
    assert sum(one[0] - 1 for one in sent) == 2 * KEY_HEADS * HEAD_DIM * visible


def test_queries_travel_and_their_results_go_home() -> None:
    for sent in on_ranks(2, numbers_sent, None, QUERIES):
        rows = (EDGES[-1] - EDGES[-2]) // 2
        assert sent == [HEADS * HEAD_DIM * rows + 1, HEADS * (HEAD_DIM + 1) * rows]


# Stopping.


def steps_left(group: RingGroup) -> list[bool]:
    """Per way: was the step left on this rank, when only the last rank wants it."""
    left: list[bool] = []
    for rule in (KEYS, QUERIES):
        kv = ShardedKv(rank=group.rank, num_ranks=group.size, capacity=EDGES[-1])
        new = zigzag(0, EDGES[1], group.size)
        rows = positions_of(new[group.rank])
        stop = group.rank == group.size - 1
        try:
            RingPass(kv, new, group, lambda: stop, rule).attend(call_for(rows, None))  # noqa: B023
            left.append(False)
        except StepAborted:
            left.append(True)
    return [*left, chunk_by_chunk(group, None, RULE, lambda: False) < 1e-5]


@pytest.mark.parametrize("num_ranks", [1, 2, 3])
def test_a_wish_to_stop_reaches_all_ranks_either_way(num_ranks: int) -> None:
    assert on_ranks(num_ranks, steps_left) == [[True] * 3] * num_ranks
