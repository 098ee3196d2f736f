"""Hierarchical attention against dense computations, and independent of the number of ranks."""

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
import torch

from engines.chunks import ChunkPlan, plan_chunks
from engines.config import HierarchicalConfig
from engines.gang.messages import Span
from engines.local.ring import RingGroup
from engines.local.rotary import Rotary
from tests.engines.local.dense import layout_of, masked_logits, plain_llama, visible
from tests.engines.local.driving import Case, Driver, answer_of
from tests.engines.local.families import (
    NAMES,
    Answer,
    plain_answer,
    plain_model,
    prompt_of,
    save_family,
)
from tests.engines.local.ranks import on_ranks

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(180)]

SIZES = HierarchicalConfig(chunk_tokens=48, anchor_tokens=8, top_k=3)
EVERYTHING = HierarchicalConfig(chunk_tokens=48, anchor_tokens=8, top_k=1000)
SMALL_WINDOW = 256
BEYOND = ("llama", "smollm3", "phi3", "gemma3_text")
"""Tested beyond their window as well: plain, without RoPE, partial RoPE, two RoPEs and windows."""
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

    @property
    def chosen(self) -> list[int]:
        return sorted(PLAN.chunks.index((span.start, span.stop)) for span in self.spans)


def ask(
    group: RingGroup, folders: dict[str, Path], sizes: HierarchicalConfig, case: Case
) -> dict[str, Asked]:
    asked = {}
    for name, folder in folders.items():
        driver = Driver(folder, group, sizes)
        answer = answer_of(driver.answer(case))
        asked[name] = Asked(answer, *driver.spans())
    return asked


@pytest.fixture(scope="session")
def folders(families: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The families, and some again with a window that the prompt does not fit."""
    folder = tmp_path_factory.mktemp("small_windows")
    small = {
        f"{name} beyond its window": save_family(
            name, folder / name, max_position_embeddings=SMALL_WINDOW
        )
        for name in BEYOND
    }
    return families | small


@cache
def on_each(
    num_ranks: int, folders: tuple[tuple[str, Path], ...], sizes: HierarchicalConfig
) -> list[dict[str, Asked]]:
    return on_ranks(num_ranks, ask, dict(folders), sizes, CASE)


def difference(answer: Answer, wanted: Sequence[Sequence[float]]) -> float:
    return float((torch.tensor(answer.logprobs) - torch.tensor(wanted)).abs().max())


# Against dense computations.


def masked_answers(
    _: RingGroup, folders: dict[str, Path], asked: dict[str, Asked]
) -> dict[str, list[list[float]]]:
    """What transformers says after each of the tokens that we answered."""
    wanted: dict[str, list[list[float]]] = {}
    for name, folder in folders.items():
        model = plain_model(folder, "eager")
        rows = []
        for step in range(CASE.num_tokens):
            ids = CASE.prompt + asked[name].answer.tokens[:step]
            seen = visible(PLAN, asked[name].chosen, len(ids))
            rows.append(masked_logits(model, ids, seen).tolist())
        wanted[name] = rows
    return wanted


@pytest.mark.parametrize("sizes", [SIZES, EVERYTHING], ids=["top 3", "every chunk"])
def test_within_the_window_it_equals_transformers_under_an_explicit_mask(
    sizes: HierarchicalConfig, families: dict[str, Path], folders: dict[str, Path]
) -> None:
    asked = on_each(2, tuple(folders.items()), sizes)[0]
    wanted = on_ranks(1, masked_answers, families, asked)[0]
    for name in families:
        assert len(asked[name].chosen) == min(sizes.top_k, len(PLAN.chunks)), name
        assert difference(asked[name].answer, wanted[name]) < 1e-5, name


def plain_beyond(
    _: RingGroup, folder: Path, asked: Asked
) -> tuple[list[list[float]], list[float], float]:
    """Log-probabilities after each token, the mass of every chunk, and the recall."""
    model = plain_model(folder, "eager")
    rows = []
    for step in range(CASE.num_tokens):
        ids = CASE.prompt + asked.answer.tokens[:step]
        layout = layout_of(PLAN, asked.chosen, len(ids), weighing=False)
        seen = visible(PLAN, asked.chosen, len(ids))
        rows.append(plain_llama(model, ids, seen, layout, PLAN.question_start)[0].tolist())
    every = range(len(PLAN.chunks))
    layout = layout_of(PLAN, every, len(CASE.prompt), weighing=True)
    seen = visible(PLAN, every, len(CASE.prompt))
    attention = plain_llama(model, CASE.prompt, seen, layout, PLAN.question_start)[1]
    by_key = attention[PLAN.question_start :].mean(0)
    mass = [float(by_key[start:stop].sum()) for start, stop in PLAN.chunks]
    return rows, mass, 1.0 - sum(m for j, m in enumerate(mass) if j not in asked.chosen)


def test_beyond_the_window_it_equals_a_llama_written_out(folders: dict[str, Path]) -> None:
    name = "llama beyond its window"
    asked = on_each(2, tuple(folders.items()), SIZES)[0][name]
    wanted, mass, recall = on_ranks(1, plain_beyond, folders[name], asked)[0]
    assert len(asked.chosen) == 3
    assert difference(asked.answer, wanted) < 2e-5
    for span in asked.spans:
        chunk = PLAN.chunks.index((span.start, span.stop))
        assert span.mass == pytest.approx(mass[chunk], abs=1e-5)
    assert asked.recall == pytest.approx(recall, abs=1e-5)


# Corner cases.


def plain_answers(_: RingGroup, folder: Path, prompts: list[list[int]]) -> list[Answer]:
    model = plain_model(folder, "eager")
    return [plain_answer(model, prompt, 6) for prompt in prompts]


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
    wanted = on_ranks(1, plain_answers, families["qwen3"], [case.prompt for case in cases])[0]
    for by_case in on_ranks(3, short_answers, families["qwen3"], cases):
        for given, plain in zip(by_case, wanted, strict=True):
            assert given.tokens == plain.tokens
            assert difference(given, plain.logprobs) < 1e-5


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


def test_what_is_chosen_fits_the_window(folders: dict[str, Path]) -> None:
    asked = on_each(2, tuple(folders.items()), EVERYTHING)[0]
    for name in BEYOND:
        given = asked[f"{name} beyond its window"]
        seen = sum(span.stop - span.start for span in given.spans)
        needed = PLAN.anchor_stop + seen + len(CASE.prompt) - PLAN.question_start + CASE.num_tokens
        assert SMALL_WINDOW - 48 < needed <= SMALL_WINDOW


# Rotation.


@pytest.mark.parametrize("name", NAMES)
def test_turning_the_query_equals_moving_the_keys(name: str, families: dict[str, Path]) -> None:
    model = plain_model(families[name], "eager")
    apply = importlib.import_module(type(model).__module__).apply_rotary_pos_emb
    rotary = Rotary.of(model)
    generator = torch.Generator().manual_seed(0)
    size = getattr(model.config, "head_dim", None) or 8
    query, key = (torch.randn(1, 2, 3, size, generator=generator) for _ in range(2))
    for layer, module in enumerate(model.model.layers):
        types = {"layer_type": module.self_attn.layer_type} if name == "gemma3_text" else {}

        def at(x: torch.Tensor, first: int, types: dict[str, str] = types) -> torch.Tensor:
            positions = torch.arange(first, first + 3)[None]
            turned: torch.Tensor = apply(x, x, *model.model.rotary_emb(x, positions, **types))[0]
            return turned[0]

        if rotary.layers[layer] is None:
            assert not module.self_attn.use_rope
            continue
        moved = at(query, 200) @ at(key, 20 + 50).transpose(1, 2)
        turned = rotary.turn(at(query, 200), layer, -50) @ at(key, 20).transpose(1, 2)
        assert float((moved - turned).abs().max()) < 1e-4
        untouched = at(query, 200) @ at(key, 20).transpose(1, 2)
        assert float((moved - untouched).abs().max()) > 1e-2


def test_layers_without_rope_are_known(families: dict[str, Path]) -> None:
    rotary = Rotary.of(plain_model(families["smollm3"], "eager"))
    assert [layer is None for layer in rotary.layers] == [False, False, False, True]
    q_HTD = torch.randn(2, 3, 8)
    assert torch.equal(rotary.turn(q_HTD, 3, -50), q_HTD)
