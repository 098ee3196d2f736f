"""The default model on one, two and three ranks answers as plain transformers does."""

from functools import cache
from pathlib import Path

import pytest
import torch

from engines.local.ring import RingGroup
from tests.engines.local.driving import SMALL_CHUNKS, Case, Driver, spec_of
from tests.engines.local.families import plain_answer, plain_model, prompt_of
from tests.engines.local.ranks import on_ranks

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(300)]

LENGTHS = (37, 1000, 4001)
NUM_TOKENS = 8
CHUNK = 512


def case_of(length: int) -> Case:
    # Ids of real words, not of the vocabulary's reserved start.
    prompt = [1000 + 101 * token for token in prompt_of(length)]
    return Case(prompt=prompt, num_tokens=NUM_TOKENS, chunk=CHUNK, sampling=spec_of())


def plain_and_alone(pair: RingGroup, folder: Path) -> dict[int, list[int]]:
    """Two processes side by side that do not talk: plain transformers, and a ring of one."""
    if pair.rank == 1:
        return ring_tokens(RingGroup(None, rank=0, size=1), folder)
    model = plain_model(folder, "sdpa")
    return {n: plain_answer(model, case_of(n).prompt, NUM_TOKENS).tokens for n in LENGTHS}


def ring_tokens(group: RingGroup, folder: Path) -> dict[int, list[int]]:
    driver = Driver(folder, group, SMALL_CHUNKS)
    return {n: [one.token_id for one in driver.answer(case_of(n))] for n in LENGTHS}


def tokens_with_one_rank_shaken(group: RingGroup, folder: Path) -> dict[float, list[int]]:
    """The last rank's values are shaken, by nothing and by half, after the prompt was read."""
    driver = Driver(folder, group, SMALL_CHUNKS)
    answers = {}
    for sequence_id, size in enumerate((0.0, 0.5)):
        tokens = [driver.first(sequence_id, case_of(LENGTHS[0])).token_id]
        kv = driver.executor.sequences[sequence_id].kv
        if group.rank == group.size - 1:
            for layer in range(driver.executor.num_layers):
                _, v_GSD = kv.store.read(layer, 0, kv.num_held)
                with torch.inference_mode():
                    v_GSD.mul_(1.0 + size)
        while len(tokens) < NUM_TOKENS:
            tokens += [one.token_id for one in driver.decode(sequence_id)]
        answers[size] = tokens
    return answers


@cache
def expected_and_alone(folder: Path) -> list[dict[int, list[int]]]:
    return on_ranks(2, plain_and_alone, folder)


def test_one_rank_answers_as_plain_transformers_does(smollm2: Path) -> None:
    wanted, alone = expected_and_alone(smollm2)
    assert alone == wanted


@pytest.mark.parametrize("num_ranks", [2, 3])
def test_several_ranks_answer_as_plain_transformers_does(num_ranks: int, smollm2: Path) -> None:
    for tokens in on_ranks(num_ranks, ring_tokens, smollm2):
        assert tokens == expected_and_alone(smollm2)[0]


def test_a_wrong_kv_on_one_rank_is_noticed(smollm2: Path) -> None:
    wanted = expected_and_alone(smollm2)[0][LENGTHS[0]]
    answers = on_ranks(2, tokens_with_one_rank_shaken, smollm2)[0]
    assert answers[0.0] == wanted
    assert answers[0.5] != wanted
