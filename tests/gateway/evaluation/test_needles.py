"""What is planted: that it answers its question, and is the same for the same seed."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.evaluation.needles import CHAIN_LENGTH, NUM_KEYS, Task, plant
from gateway.evaluation.scoring import num_said, says, wilson

NUM_WANTED = {
    Task.MULTIVALUE: NUM_KEYS,
    Task.MULTIQUERY: NUM_KEYS,
    Task.VARIABLES: CHAIN_LENGTH,
}


@pytest.mark.parametrize("task", Task)
@given(seed=st.integers(0, 10_000), depth=st.floats(0, 1))
def test_the_facts_say_what_is_wanted_and_the_question_does_not(
    task: Task, seed: int, depth: float
) -> None:
    planted = plant(task, depth, random.Random(seed))
    told = " ".join(fact.text for fact in planted.facts)
    assert len(planted.wanted) == len(set(planted.wanted)) == NUM_WANTED.get(task, 1)
    assert num_said(told, planted.wanted + planted.decoys) == len(planted.wanted + planted.decoys)
    assert num_said(planted.question, planted.wanted + planted.decoys) == 0
    assert all(0 <= fact.depth <= 1 for fact in planted.facts)
    assert planted == plant(task, depth, random.Random(seed))


def test_the_two_hops_are_half_the_text_apart() -> None:
    facts = plant(Task.TWO_HOP, 0.25, random.Random(1)).facts
    assert {fact.depth for fact in facts} == {0.25, 0.75}


@pytest.mark.parametrize(
    ("answer", "is_said"),
    [("It is 12345.", True), ("A12345", False), ("912345", False), ("12,345", False), ("", False)],
)
def test_a_value_counts_when_it_is_said_exactly(answer: str, is_said: bool) -> None:
    assert says(answer, "12345") is is_said


@given(total=st.integers(1, 500), data=st.data())
def test_wilsons_interval_holds_the_share_and_stays_within_0_and_1(
    total: int, data: st.DataObject
) -> None:
    right = data.draw(st.integers(0, total))
    low, high = wilson(right, total)
    assert 0 <= low <= right / total <= high <= 1


def test_wilsons_interval_is_the_published_one() -> None:
    assert wilson(9, 10) == pytest.approx((0.5958, 0.9821), abs=1e-4)
    assert wilson(0, 0) == (0.0, 1.0)
