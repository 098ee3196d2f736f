"""What an executor promises its supervisor, on tiny models and several ranks."""

import time
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from torch import Tensor

from engines.config import HierarchicalConfig
from engines.gang.messages import Ask, Branch, Decode, Encode, Fork, Prefill
from engines.local.placement import positions_of
from engines.local.ring import RingGroup
from tests.engines.local.driving import SMALL_CHUNKS, Case, Driver, spec_of
from tests.engines.local.families import prompt_of
from tests.engines.local.ranks import on_ranks

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(120)]

WARM = spec_of(temperature=0.9, top_p=0.95, top_k=40, seed=11, frequency_penalty=0.2)


def cases() -> list[Case]:
    """Full and hierarchical sequences of different lengths, greedy and sampled."""
    return [
        Case(prompt=prompt_of(90), num_tokens=6, chunk=40, sampling=spec_of()),
        Case(prompt=prompt_of(1), num_tokens=6, sampling=WARM),
        Case(
            prompt=prompt_of(230),
            num_tokens=6,
            sampling=WARM,
            hierarchical=True,
            question_start=215,
        ),
        Case(
            prompt=prompt_of(120),
            num_tokens=6,
            sampling=spec_of(top_logprobs=3),
            hierarchical=True,
            question_start=110,
        ),
    ]


# Batched decoding.


def batched_and_single(
    group: RingGroup, folder: Path
) -> tuple[list[list[int]], list[list[int]], list[list[int]]]:
    driver = Driver(folder, group, SMALL_CHUNKS)
    single = [[one.token_id for one in driver.answer(case)] for case in cases()]
    batched = [[driver.first(i, case).token_id] for i, case in enumerate(cases())]
    for _ in range(5):
        for one in driver.decode(*range(len(batched))):
            batched[one.sequence_id].append(one.token_id)
    for i in range(len(batched)):
        driver.executor.close(i)
    replayed = []
    for case, tokens in zip(cases(), single, strict=True):
        rest = Case(
            prompt=case.prompt,
            num_tokens=3,
            replay=tokens[:3],
            chunk=case.chunk,
            sampling=case.sampling,
            hierarchical=case.hierarchical,
            question_start=case.question_start,
        )
        replayed.append(tokens[:3] + [one.token_id for one in driver.answer(rest)])
    return single, batched, replayed


@pytest.fixture(scope="module")
def answers(
    families: dict[str, Path],
) -> dict[int, list[tuple[list[list[int]], list[list[int]], list[list[int]]]]]:
    return {n: on_ranks(n, batched_and_single, families["qwen3"]) for n in (1, 2, 3)}


Answers = dict[int, list[tuple[list[list[int]], list[list[int]], list[list[int]]]]]


def test_a_batch_decodes_what_its_sequences_decode_alone(answers: Answers) -> None:
    for by_rank in answers.values():
        for single, batched, _ in by_rank:
            assert batched == single


def test_tokens_do_not_depend_on_the_number_of_ranks(answers: Answers) -> None:
    wanted = answers[1][0][0]
    assert len({token for tokens in wanted for token in tokens}) > 5
    for by_rank in answers.values():
        for single, _, _ in by_rank:
            assert single == wanted


def test_a_replayed_answer_goes_on_where_it_broke_off(answers: Answers) -> None:
    for by_rank in answers.values():
        for single, _, replayed in by_rank:
            assert replayed == single


class CountingRing(RingGroup):
    """Counts exchanges between ranks, however they are made."""

    num_exchanges = 0

    def gather(self, mine_X: Tensor) -> Tensor:
        self.num_exchanges += 1
        return super().gather(mine_X)


def exchanges_of_a_decode_step(group: RingGroup, folder: Path) -> tuple[int, int]:
    """(layers, exchanges) for three sequences that are decoded together."""
    counting = CountingRing(
        group._group, rank=group.rank, size=group.size, links=group._links, device=group.device
    )
    driver = Driver(folder, counting, SMALL_CHUNKS)
    for sequence_id in range(3):
        driver.first(sequence_id, Case(prompt=prompt_of(30 + sequence_id), sampling=spec_of()))
    counting.num_exchanges = 0
    driver.decode(0, 1, 2)
    return driver.executor.num_layers, counting.num_exchanges


def test_a_batch_takes_one_exchange_per_layer_and_one_for_its_tokens(
    families: dict[str, Path],
) -> None:
    for num_layers, num_exchanges in on_ranks(2, exchanges_of_a_decode_step, families["llama"]):
        assert num_exchanges == num_layers + 1


# Several answers to one prompt.


def forked_and_single(
    group: RingGroup, folder: Path
) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    """Answers by seed: from one reading of the prompt, and from a reading each."""
    driver = Driver(folder, group, SMALL_CHUNKS)
    case = cases()[2]
    seeds = {1: WARM.seed, 2: 77, 3: 78}
    single = {}
    for seed in seeds.values():
        alone = replace(case, sampling=msgspec.structs.replace(WARM, seed=seed))
        single[seed] = [one.token_id for one in driver.answer(alone)]
    forked = {WARM.seed: [driver.first(1, case).token_id]}
    branches = [Branch(sequence_id=i, seed=seeds[i]) for i in (2, 3)]
    for one in driver.run(Fork(step_id=1000, sequence_id=1, branches=branches)):
        forked[seeds[one.sequence_id]] = [one.token_id]
    for _ in range(case.num_tokens - 1):
        for one in driver.decode(1, 2, 3):
            forked[seeds[one.sequence_id]].append(one.token_id)
    return forked, single


def test_branches_of_a_read_prompt_answer_as_if_each_had_read_it(
    families: dict[str, Path],
) -> None:
    for forked, single in on_ranks(2, forked_and_single, families["qwen3"]):
        assert forked == single
        assert len({tuple(tokens) for tokens in single.values()}) == 3


# Causality.


def last_layer_values(
    group: RingGroup, folder: Path, prompts: list[list[int]]
) -> list[dict[int, list[float]]]:
    """Per prompt: position to what the last layer stored there, this rank's positions only."""
    driver = Driver(folder, group, SMALL_CHUNKS)
    stored = []
    for sequence_id, prompt in enumerate(prompts):
        driver.first(sequence_id, Case(prompt=prompt, chunk=64))
        kv = driver.executor.sequences[sequence_id].kv
        _, v_GSD = kv.store.read(driver.executor.num_layers - 1, 0, kv.num_held)
        positions = positions_of(kv.shares[group.rank])
        stored.append({p: v_GSD[:, i].flatten().tolist() for i, p in enumerate(positions)})
    return stored


def test_no_token_sees_a_later_one(families: dict[str, Path]) -> None:
    prompt, changed = prompt_of(203), prompt_of(203)
    changed[150] = 3 if changed[150] != 3 else 4
    by_rank = on_ranks(2, last_layer_values, families["mistral"], [prompt, changed])
    stored, stored_changed = ({**by_rank[0][i], **by_rank[1][i]} for i in range(2))
    assert set(stored) == set(range(203))
    assert all(stored[p] == stored_changed[p] for p in range(150))
    assert all(stored[p] != stored_changed[p] for p in range(150, 203))


# Cancelling.


class CancelAfter:
    """Says cancelled from the n-th time it is asked, and notes when it first did."""

    def __init__(self, times: int) -> None:
        self._left = times
        self.said_s: float | None = None

    def __call__(self, sequence_id: int) -> bool:
        self._left -= 1
        if self._left >= 0:
            return False
        self.said_s = self.said_s or time.monotonic()
        return True


def never_on_other_ranks(group: RingGroup, times: int) -> CancelAfter:
    """Only the last rank hears of the cancel."""
    return CancelAfter(times if group.rank == group.size - 1 else 1 << 30)


def abort_everything(group: RingGroup, folder: Path) -> dict[str, tuple[bool, int]]:
    """Per step: was it aborted, and how much did it bring."""
    driver = Driver(folder, group, SMALL_CHUNKS)
    seen: dict[str, tuple[bool, int]] = {}
    full = Case(prompt=prompt_of(203))
    deep = Case(prompt=prompt_of(203), hierarchical=True, question_start=190)
    driver.open(1, full)
    driver.open(2, deep)
    steps = {
        "prefill": Prefill(step_id=1, sequence_id=1, start=0, stop=203),
        "tiny prefill": Prefill(step_id=2, sequence_id=1, start=0, stop=1),
    }
    for name, step in steps.items():
        done = driver.executor.run(step, never_on_other_ranks(group, 2))
        seen[name] = done.aborted, len(done.sampled)
    for first in range(3):
        driver.run(Encode(step_id=3, sequence_id=2, first=first, last=first + 1))
    driver.run(Encode(step_id=3, sequence_id=2, first=3, last=5))
    ask = Ask(step_id=4, sequence_id=2)
    # An Ask runs no layer: it asks once whether anybody still waits.
    done = driver.executor.run(ask, never_on_other_ranks(group, 0))
    seen["ask"] = done.aborted, len(done.spans)
    driver.run(ask)
    total = len(driver.executor.sequences[2].ids_T)
    step = Prefill(step_id=5, sequence_id=2, start=0, stop=total)
    done = driver.executor.run(step, never_on_other_ranks(group, 2))
    seen["shortlist"] = done.aborted, len(done.sampled)
    driver.executor.close(1)
    driver.executor.close(2)
    driver.first(3, full)
    done = driver.executor.run(Decode(step_id=6, sequence_ids=[3]), never_on_other_ranks(group, 2))
    seen["decode"] = done.aborted, len(done.sampled)
    driver.executor.close(3)
    return seen


def go_on_after_aborts(group: RingGroup, folder: Path) -> tuple[list[int], list[int]]:
    driver = Driver(folder, group, SMALL_CHUNKS)
    case = cases()[0]
    wanted = [one.token_id for one in driver.answer(case)]
    driver.open(9, Case(prompt=prompt_of(203)))
    step = Prefill(step_id=1, sequence_id=9, start=0, stop=203)
    assert driver.executor.run(step, never_on_other_ranks(group, 1)).aborted
    driver.executor.close(9)
    return wanted, [one.token_id for one in driver.answer(case)]


@pytest.mark.parametrize("num_ranks", [1, 2, 3])
def test_a_cancel_that_one_rank_hears_aborts_the_step_on_all(
    num_ranks: int, families: dict[str, Path]
) -> None:
    for seen in on_ranks(num_ranks, abort_everything, families["llama"]):
        assert seen == dict.fromkeys(
            ("prefill", "tiny prefill", "ask", "shortlist", "decode"), (True, 0)
        )


def test_the_ranks_go_on_serving_after_an_abort(families: dict[str, Path]) -> None:
    for wanted, given in on_ranks(3, go_on_after_aborts, families["llama"]):
        assert given == wanted


def abort_one_of_two(group: RingGroup, folder: Path) -> tuple[bool, int]:
    driver = Driver(folder, group, SMALL_CHUNKS)
    for sequence_id in (1, 2):
        driver.first(sequence_id, Case(prompt=prompt_of(20)))
    done = driver.executor.run(Decode(step_id=9, sequence_ids=[1, 2]), lambda i: i == 1)
    return done.aborted, len(done.sampled)


def test_cancelling_one_sequence_of_a_batch_leaves_the_batch_alone(
    families: dict[str, Path],
) -> None:
    assert on_ranks(2, abort_one_of_two, families["llama"]) == [(False, 2)] * 2


def seconds_to_stop(group: RingGroup, folder: Path) -> float:
    """From the word to the step's end, in the middle of a large chunk on the default model."""
    driver = Driver(folder, group, HierarchicalConfig())
    driver.open(1, Case(prompt=[1000 + 7 * i for i in range(512)]))
    hears = never_on_other_ranks(group, 10)
    done = driver.executor.run(Prefill(step_id=1, sequence_id=1, start=0, stop=512), hears)
    assert done.aborted
    return time.monotonic() - hears.said_s if hears.said_s else 0.0


def test_an_abort_takes_less_than_a_quarter_second(smollm2: Path) -> None:
    assert 0.0 < max(on_ranks(2, seconds_to_stop, smollm2)) < 0.25


# Steps that make no sense.


def refuse_bad_steps(group: RingGroup, folder: Path) -> list[str]:
    driver = Driver(folder, group, SMALL_CHUNKS)
    driver.open(1, Case(prompt=prompt_of(100)))
    driver.open(2, Case(prompt=prompt_of(100), hierarchical=True, question_start=90))
    errors = []
    for step in (
        Prefill(step_id=1, sequence_id=1, start=5, stop=20),
        Prefill(step_id=1, sequence_id=1, start=0, stop=101),
        Prefill(step_id=1, sequence_id=7, start=0, stop=10),
        Prefill(step_id=1, sequence_id=2, start=0, stop=10),
        Encode(step_id=1, sequence_id=1, first=0, last=1),
        Ask(step_id=1, sequence_id=2),
    ):
        with pytest.raises(ValueError, match=r"sequence|cannot prefill") as caught:
            driver.run(step)
        errors.append(str(caught.value))
    with pytest.raises(ValueError, match="open already"):
        driver.open(1, Case(prompt=prompt_of(5)))
    driver.executor.close(99)
    return errors


def test_a_step_that_does_not_fit_is_an_error(families: dict[str, Path]) -> None:
    errors = on_ranks(1, refuse_bad_steps, families["llama"])[0]
    assert len(errors) == 6
    assert "0 of 100 tokens are there" in errors[0]


def outgrow(group: RingGroup, folder: Path) -> tuple[list[int], list[int]]:
    """The same prompt, with room for its answer and without."""
    driver = Driver(folder, group, SMALL_CHUNKS)
    roomy = Case(prompt=prompt_of(20), num_tokens=150, sampling=spec_of())
    wanted = [one.token_id for one in driver.answer(roomy)]
    tight = Case(prompt=prompt_of(20), num_tokens=1, sampling=spec_of())
    tokens = [driver.first(1, tight).token_id]
    while len(tokens) < 150:
        tokens += [one.token_id for one in driver.decode(1)]
    return wanted, tokens


def test_a_sequence_that_outgrows_its_room_loses_nothing(families: dict[str, Path]) -> None:
    for wanted, given in on_ranks(2, outgrow, families["llama"]):
        assert given == wanted


def bfloat16_tokens(group: RingGroup, folder: Path) -> list[int]:
    driver = Driver(folder, group, SMALL_CHUNKS, dtype="bfloat16")
    return [one.token_id for one in driver.answer(cases()[0])]


def test_bfloat16_runs_on_the_ring(families: dict[str, Path]) -> None:
    first, second = on_ranks(2, bfloat16_tokens, families["gpt_oss"])
    assert first == second
    assert len(first) == 6
