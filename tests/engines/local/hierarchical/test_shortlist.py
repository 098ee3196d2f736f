"""Which chunks are read again: by attention, by words, by the trail, within the room."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from engines.chunks import plan_chunks
from engines.config import HierarchicalConfig
from engines.local.hierarchical.lexical import Lexicon
from engines.local.hierarchical.shortlist import choose, falling, interleaved
from engines.local.hierarchical.votes import Weights

SIZES = HierarchicalConfig(chunk_tokens=16, anchor_tokens=4, top_k=2, most_k=6, least_recall=0.9)
PLAN = plan_chunks(4 + 16 * 8 + 5, 4 + 16 * 8, (), SIZES)
NO_ROOM_LIMIT = 1 << 20


def weights_of(*mass: float) -> Weights:
    return Weights(score=mass, mass=mass, keen=mass)


def test_the_best_of_each_order_come_before_the_second_of_any() -> None:
    assert list(interleaved([[3, 1, 2], [3, 4], [], [5]])) == [3, 5, 1, 4, 2]


def test_more_is_read_again_while_too_little_is_covered() -> None:
    spread = weights_of(0.2, 0.2, 0.2, 0.2, 0.06, 0.04, 0.02, 0.01)
    choice = choose(spread, [7, 6], PLAN, SIZES, NO_ROOM_LIMIT)
    assert choice.chosen == (0, 1, 2, 3, 6, 7)
    assert choice.recall == 1.0 - 0.1 - 0.0 or abs(choice.recall - 0.9) < 1e-9


def test_no_more_is_read_again_than_needed_or_allowed() -> None:
    clear = weights_of(0.5, 0.4, 0.01, 0.01, 0.01, 0.01, 0.0, 0.0)
    assert choose(clear, [0, 1], PLAN, SIZES, NO_ROOM_LIMIT).chosen == (0, 1)
    flat = weights_of(*[0.1] * 8)
    assert len(choose(flat, [0, 1], PLAN, SIZES, NO_ROOM_LIMIT).chosen) == SIZES.most_k


@given(room=st.integers(0, 200), mass=st.lists(st.floats(0, 0.1), min_size=8, max_size=8))
def test_what_is_read_again_fits_the_room(room: int, mass: list[float]) -> None:
    choice = choose(weights_of(*mass), falling(mass), PLAN, SIZES, room)
    assert sum(stop - start for start, stop in PLAN.spans(choice.chosen)) <= room
    assert 0.0 <= choice.recall <= 1.0


# Words.

NAME, BRIDGE, CODE = [901, 902], [903], [904]
ASKED = np.array([11, 12, *NAME, 13], dtype=np.int64)


def text_with(*planted: tuple[int, list[int]]) -> Lexicon:
    """Eight chunks of ordinary words, with others in some of them."""
    ids = np.random.default_rng(0).integers(10, 12, PLAN.question_start)
    for chunk, words in planted:
        at = PLAN.chunks[chunk][0] + 3
        ids[at : at + len(words)] = words
    return Lexicon(ids, PLAN.chunks)


def test_a_rare_name_points_to_its_chunk() -> None:
    scores = text_with((5, NAME)).scores([ASKED])
    assert falling(list(scores))[0] == 5


def test_words_that_every_chunk_has_count_nothing() -> None:
    ids = np.full(PLAN.question_start, 11, dtype=np.int64)
    assert Lexicon(ids, PLAN.chunks).scores([np.array([11, 99])]).max() == 0.0


def test_the_words_beside_a_name_lead_on_to_another_chunk() -> None:
    lexicon = text_with((2, NAME + BRIDGE), (6, BRIDGE + CODE))
    assert falling(list(lexicon.scores([ASKED])))[0] == 2
    beside = lexicon.near([ASKED], 2)
    onward = [chunk for chunk in falling(list(lexicon.scores(beside))) if chunk != 2]
    assert onward[0] == 6


@given(asked=st.lists(st.integers(0, 99), max_size=6), seed=st.integers(0, 999))
def test_any_words_have_a_score_and_a_neighbourhood(asked: list[int], seed: int) -> None:
    ids = np.random.default_rng(seed).integers(0, 99, PLAN.question_start)
    lexicon = Lexicon(ids, PLAN.chunks)
    runs = [np.array(asked, dtype=np.int64)]
    scores = lexicon.scores(runs)
    assert scores.shape == (8,)
    assert (scores >= 0).all()
    assert all(len(run) for chunk in range(8) for run in lexicon.near(runs, chunk))
