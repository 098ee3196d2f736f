"""Every proven family, on one to four ranks, answers what plain transformers answers."""

from functools import cache
from pathlib import Path

import pytest
import torch

from engines.local.ring import RingGroup
from tests.engines.local.driving import SMALL_CHUNKS, Case, Driver, answer_of
from tests.engines.local.families import NAMES, Answer, plain_answer, plain_model, prompt_of
from tests.engines.local.ranks import on_ranks

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(240)]

LENGTHS = (1, 3, 5, 7, 203)
LONG = 4001
LONG_ON_RANKS = {"llama": 3, "mistral": 2}
ONE_SHOT = 1 << 30


def cases_of(name: str, num_ranks: int) -> list[tuple[int, int]]:
    """(prompt tokens, chunk): one token, one less than a zigzag needs, and an odd many."""
    cases = [(1, ONE_SHOT), (2 * num_ranks - 1, ONE_SHOT), (203, ONE_SHOT), (203, 64)]
    return [*cases, (LONG, 512)] if LONG_ON_RANKS.get(name) == num_ranks else cases


def plain_answers(_: RingGroup, families: dict[str, Path]) -> dict[tuple[str, int], Answer]:
    answers: dict[tuple[str, int], Answer] = {}
    for name, folder in families.items():
        model = plain_model(folder, "eager")
        for length in LENGTHS:
            answers[name, length] = plain_answer(model, prompt_of(length), 8)
        if name in LONG_ON_RANKS:
            # Eager attention would need gigabytes here.
            model = plain_model(folder, "sdpa")
            answers[name, LONG] = plain_answer(model, prompt_of(LONG), 8)
    return answers


def ring_answers(group: RingGroup, families: dict[str, Path]) -> dict[tuple[str, int, int], Answer]:
    answers: dict[tuple[str, int, int], Answer] = {}
    for name, folder in families.items():
        driver = Driver(folder, group, SMALL_CHUNKS)
        for length, chunk in cases_of(name, group.size):
            case = Case(prompt=prompt_of(length), chunk=chunk)
            answers[name, length, chunk] = answer_of(driver.answer(case))
    return answers


@cache
def expected(families: tuple[tuple[str, Path], ...]) -> dict[tuple[str, int], Answer]:
    return on_ranks(1, plain_answers, dict(families))[0]


@cache
def got(
    num_ranks: int, families: tuple[tuple[str, Path], ...]
) -> list[dict[tuple[str, int, int], Answer]]:
    return on_ranks(num_ranks, ring_answers, dict(families))


@pytest.mark.parametrize("num_ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("name", NAMES)
def test_a_family_answers_as_plain_transformers_does(
    name: str, num_ranks: int, families: dict[str, Path]
) -> None:
    folders = tuple(families.items())
    for answers in got(num_ranks, folders):
        for length, chunk in cases_of(name, num_ranks):
            wanted, given = expected(folders)[name, length], answers[name, length, chunk]
            case = f"{length} tokens, chunk {chunk}"
            assert given.tokens == wanted.tokens, case
            difference = torch.tensor(given.logprobs) - torch.tensor(wanted.logprobs)
            assert float(difference.abs().max()) < 1e-5, case
