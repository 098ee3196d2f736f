"""Hierarchical attention against plain transformers, and independent of the number of ranks."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
import torch

from engines.chunks import ChunkPlan, plan_chunks
from engines.config import HierarchicalConfig
from engines.gang.limits import GangLimits
from engines.gang.messages import Span
from engines.local.ring import RingGroup
from tests.engines.local.driving import Case, Driver, answer_of, request_of
from tests.engines.local.families import (
    Answer,
    plain_answer,
    plain_model,
    prompt_of,
    save_family,
)
from tests.engines.local.ranks import on_ranks

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(180)]

SIZES = HierarchicalConfig(chunk_tokens=48, anchor_tokens=8, top_k=3)
EVERYTHING = HierarchicalConfig(chunk_tokens=48, anchor_tokens=8, top_k=1000, most_k=1000)
SMALL_WINDOW = 256
SMALL = "llama with a small window"
CASE = Case(
    prompt=prompt_of(403),
    num_tokens=6,
    hierarchical=True,
    question_start=391,
    document_starts=[100, 120, 250],
)
PLAN: ChunkPlan = plan_chunks(403, 391, (100, 120, 250), SIZES)


@dataclass(frozen=True, slots=True)
class Asked:
    answer: Answer
    spans: list[Span]
    recall: float
    kv_tokens: int

    @property
    def chosen(self) -> list[int]:
        """By where they end; a chunk may be read with what stands before it."""
        stops = [stop for _, stop in PLAN.chunks]
        return sorted(stops.index(span.stop) for span in self.spans)

    @property
    def shortlist(self) -> list[int]:
        """Anchor, chosen chunks and question."""
        spans = sorted((span.start, span.stop) for span in self.spans)
        chosen = [token for start, stop in spans for token in CASE.prompt[start:stop]]
        return CASE.prompt[: PLAN.anchor_stop] + chosen + CASE.prompt[PLAN.question_start :]


def ask(group: RingGroup, folders: dict[str, Path], sizes: HierarchicalConfig) -> dict[str, Asked]:
    asked = {}
    for name, folder in folders.items():
        driver = Driver(folder, group, sizes)
        answer = answer_of(driver.answer(CASE))
        asked[name] = Asked(answer, *driver.spans(), driver.kv_tokens)
    return asked


@pytest.fixture(scope="session")
def folders(families: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The families, and one again with a window that the prompt does not fit."""
    folder = tmp_path_factory.mktemp("small_window")
    return families | {SMALL: save_family("llama", folder, max_position_embeddings=SMALL_WINDOW)}


@cache
def on_each(
    num_ranks: int, folders: tuple[tuple[str, Path], ...], sizes: HierarchicalConfig
) -> list[dict[str, Asked]]:
    return on_ranks(num_ranks, ask, dict(folders), sizes)


def difference(answer: Answer, wanted: Answer) -> float:
    return float((torch.tensor(answer.logprobs) - torch.tensor(wanted.logprobs)).abs().max())


# The choice.


def test_what_is_chosen_is_told_with_its_share_of_the_attention(folders: dict[str, Path]) -> None:
    everything = on_each(2, tuple(folders.items()), EVERYTHING)[0]
    for name, some in on_each(2, tuple(folders.items()), SIZES)[0].items():
        assert len(some.chosen) == SIZES.top_k, name
        masses = [span.mass for span in some.spans]
        assert masses == sorted(masses, reverse=True)
        if name != SMALL:
            by_stop = {span.stop: span.mass for span in everything[name].spans}
            assert masses == [by_stop[span.stop] for span in some.spans]
            assert 0.0 < some.recall < everything[name].recall == pytest.approx(1.0), name


# The answer.


def plain_answers(_: RingGroup, prompts: list[tuple[Path, list[int]]]) -> list[Answer]:
    return [plain_answer(plain_model(folder, "eager"), prompt, 6) for folder, prompt in prompts]


@pytest.mark.parametrize("sizes", [SIZES, EVERYTHING], ids=["top 3", "every chunk"])
def test_the_answer_is_plain_transformers_to_anchor_chosen_chunks_and_question(
    sizes: HierarchicalConfig, folders: dict[str, Path]
) -> None:
    asked = on_each(2, tuple(folders.items()), sizes)[0]
    prompts = [(folder, asked[name].shortlist) for name, folder in folders.items()]
    for name, wanted in zip(folders, on_ranks(1, plain_answers, prompts)[0], strict=True):
        assert asked[name].answer.tokens == wanted.tokens, name
        assert difference(asked[name].answer, wanted) < 1e-5, name


def test_with_room_for_every_chunk_the_whole_prompt_is_read(folders: dict[str, Path]) -> None:
    for name, asked in on_each(2, tuple(folders.items()), EVERYTHING)[0].items():
        assert (asked.shortlist == CASE.prompt) is (name != SMALL)


# Corner cases.


def short_answers(group: RingGroup, folder: Path, cases: list[Case]) -> list[Answer]:
    driver = Driver(folder, group, SIZES)
    return [answer_of(driver.answer(case)) for case in cases]


def test_a_prompt_without_a_second_chunk_is_read_as_by_plain_transformers(
    families: dict[str, Path],
) -> None:
    lengths_and_questions = [(1, 0), (5, 5), (12, 9), (40, 0), (50, 44)]
    cases = [
        Case(prompt=prompt_of(n), num_tokens=6, hierarchical=True, question_start=question)
        for n, question in lengths_and_questions
    ]
    prompts = [(families["qwen3"], case.prompt) for case in cases]
    wanted = on_ranks(1, plain_answers, prompts)[0]
    for by_case in on_ranks(3, short_answers, families["qwen3"], cases):
        for given, plain in zip(by_case, wanted, strict=True):
            assert given.tokens == plain.tokens
            assert difference(given, plain) < 1e-5


# Number of ranks.


@pytest.mark.parametrize("num_ranks", [2, 3])
def test_spans_and_tokens_do_not_depend_on_the_number_of_ranks(
    num_ranks: int, folders: dict[str, Path]
) -> None:
    alone = on_each(1, tuple(folders.items()), SIZES)[0]
    for by_rank in on_each(num_ranks, tuple(folders.items()), SIZES):
        for name, one in alone.items():
            assert by_rank[name].answer.tokens == one.answer.tokens, name
            assert by_rank[name].chosen == one.chosen, name
            assert [s.mass for s in by_rank[name].spans] == pytest.approx(
                [s.mass for s in one.spans], abs=1e-5
            )
            assert by_rank[name].recall == pytest.approx(one.recall, abs=1e-5)


# Room.


def test_what_is_read_again_fits_the_window(folders: dict[str, Path]) -> None:
    asked = on_each(2, tuple(folders.items()), EVERYTHING)[0][SMALL]
    assert SMALL_WINDOW - 48 < len(asked.shortlist) + CASE.num_tokens <= SMALL_WINDOW


@pytest.mark.parametrize("num_ranks", [1, 2, 3])
def test_the_ranks_take_no_more_kv_than_was_admitted(
    num_ranks: int, folders: dict[str, Path]
) -> None:
    limits = GangLimits(
        ranks=num_ranks,
        vocab_size=256,
        window_tokens=8192,
        kv_budget_tokens=1 << 20,
        prefill_chunk_tokens=512,
        max_running=1,
        max_queued=1,
        hierarchical=SIZES,
    )
    by_rank = on_each(num_ranks, tuple(folders.items()), SIZES)
    for name in folders:
        taken = sum(asked[name].kv_tokens for asked in by_rank)
        assert len(by_rank[0][name].shortlist) < taken <= limits.kv_tokens(request_of(CASE))
