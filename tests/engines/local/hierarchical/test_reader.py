"""How chunks are weighed, against plain transformers, and what is kept of them."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from engines.chunks import plan_chunks
from engines.config import EngineConfig, HierarchicalConfig, SegmentsConfig
from engines.local.hierarchical.context import Context
from engines.local.hierarchical.reader import HierarchicalReader
from engines.local.hierarchical.voters import voting_layers
from engines.local.hierarchical.votes import Weights
from engines.local.loading import load_model
from engines.local.ring import RingGroup
from engines.local.segments.places import open_store
from tests.engines.local.dense import ChunkWeights, chunk_weights
from tests.engines.local.families import plain_model, prompt_of
from tests.engines.local.ranks import on_ranks

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(180)]

VOTING = (1, 2)
SIZES = HierarchicalConfig(chunk_tokens=48, anchor_tokens=8, top_k=3, voting_layers=VOTING)
PROMPT = prompt_of(403)
QUESTION_START = 391
PLAN = plan_chunks(len(PROMPT), QUESTION_START, (100, 120, 250), SIZES)


class Reading:
    """One prompt after another on one rank."""

    def __init__(self, folder: Path, group: RingGroup, segments: SegmentsConfig) -> None:
        config = EngineConfig(model_dir=folder, model_name="tiny", hierarchical=SIZES)
        store = open_store(segments, group.rank, group.size)
        decoder = load_model(folder, config.dtype)
        self._reader = HierarchicalReader(config, decoder, group, store)
        self._group = group
        self.num_reused = 0

    def weigh(self, prompt: list[int], question_start: int, owner: str = "me") -> Weights:
        with torch.inference_mode():
            return self._reader.weigh(*self._read(prompt, question_start, owner))

    def ask(self, prompt: list[int], question_start: int) -> None:
        with torch.inference_mode():
            self._reader.ask(*self._read(prompt, question_start, "me"), room_tokens=1000)

    def _read(self, prompt: list[int], question_start: int, owner: str) -> tuple[Context, Tensor]:
        plan = plan_chunks(len(prompt), question_start, (100, 120, 250), SIZES)
        context = Context(plan, SIZES, rank=self._group.rank, num_ranks=self._group.size)
        text_T = torch.tensor(prompt, dtype=torch.int32)
        for chunk in context.own:
            self._reader.encode(context, text_T, owner, chunk, lambda: False)
        self.num_reused = context.num_reused
        return context, text_T


def weigh_families(group: RingGroup, folders: dict[str, Path]) -> dict[str, Weights]:
    return {
        name: Reading(folder, group, SegmentsConfig()).weigh(PROMPT, QUESTION_START)
        for name, folder in folders.items()
    }


def dense_weights(_: RingGroup, folders: dict[str, Path]) -> dict[str, ChunkWeights]:
    return {
        name: chunk_weights(plain_model(folder, "eager"), PROMPT, PLAN, SIZES.longest_read, VOTING)
        for name, folder in folders.items()
    }


@pytest.mark.parametrize("num_ranks", [1, 3])
def test_chunks_are_weighed_as_by_transformers_under_an_explicit_mask(
    num_ranks: int, families: dict[str, Path]
) -> None:
    by_rank = on_ranks(num_ranks, weigh_families, families)
    for name, wanted in on_ranks(1, dense_weights, families)[0].items():
        for weights in by_rank:
            assert weights[name].mass == pytest.approx(wanted.mass, abs=1e-5), name
            assert weights[name].score == pytest.approx(wanted.score, abs=2e-4), name
            assert weights[name].keen == pytest.approx(wanted.keen, abs=1e-4), name
            recall = 1.0 - sum(wanted.keen[2:])
            assert weights[name].recall([0, 1]) == pytest.approx(recall, abs=2e-4), name


def kept(tmp_path: Path) -> SegmentsConfig:
    folders = tmp_path / "disk", tmp_path / "ram"
    for folder in folders:
        folder.mkdir(exist_ok=True)
    return SegmentsConfig(folder=folders[0], ram_folder=folders[1])


def test_a_later_question_finds_the_chunks_and_weighs_them_as_if_it_were_the_first(
    families: dict[str, Path], tmp_path: Path
) -> None:
    group = RingGroup(None, rank=0, size=1)
    asked_again = PROMPT[:QUESTION_START] + prompt_of(20, seed=7)
    fresh = Reading(families["llama"], group, SegmentsConfig()).weigh(asked_again, QUESTION_START)
    reading = Reading(families["llama"], group, kept(tmp_path))
    reading.weigh(PROMPT, QUESTION_START)
    assert reading.num_reused == 0
    later = Reading(families["llama"], group, kept(tmp_path))
    assert later.weigh(asked_again, QUESTION_START) == fresh
    assert later.num_reused == QUESTION_START - SIZES.anchor_tokens


def test_a_prompt_that_goes_on_reads_only_what_is_new(
    families: dict[str, Path], tmp_path: Path
) -> None:
    reading = Reading(families["llama"], RingGroup(None, rank=0, size=1), kept(tmp_path))
    reading.weigh(PROMPT, QUESTION_START)
    longer = PROMPT[:QUESTION_START] + prompt_of(120, seed=8)
    reading.weigh(longer, len(longer) - 10)
    whole = [
        stop for _, stop in PLAN.chunks if (stop - 250) % SIZES.chunk_tokens == 0 or stop <= 250
    ]
    assert reading.num_reused == max(whole) - SIZES.anchor_tokens


@pytest.mark.parametrize("changed", ["owner", "anchor", "token"])
def test_nothing_is_shared_across_owners_anchors_or_tokens(
    changed: str, families: dict[str, Path], tmp_path: Path
) -> None:
    reading = Reading(families["llama"], RingGroup(None, rank=0, size=1), kept(tmp_path))
    reading.weigh(PROMPT, QUESTION_START)
    prompt = list(PROMPT)
    if changed != "owner":
        at = 3 if changed == "anchor" else 60
        prompt[at] = (prompt[at] + 1) % 200 + 3
    reading.weigh(prompt, QUESTION_START, owner="you" if changed == "owner" else "me")
    read_anew = QUESTION_START - SIZES.anchor_tokens - reading.num_reused
    own = [stop - start for start, stop in PLAN.chunks]
    # The token stands in the chunk [56, 100) only: the next one begins another document.
    assert read_anew == (own[1] if changed == "token" else sum(own))


def test_what_int8_loses_of_the_keys_is_reported(
    families: dict[str, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reading = Reading(families["llama"], RingGroup(None, rank=0, size=1), kept(tmp_path))
    with caplog.at_level("INFO", "engines.local.hierarchical.reader"):
        reading.ask(PROMPT, QUESTION_START)
        reading.ask(PROMPT, QUESTION_START)
    lost = [vars(record)["key_error"] for record in caplog.records]
    assert 0.0 < lost[0] < 0.01
    assert lost[1] == 0.0, "what is read from the store is not rounded again"


def test_voting_layers_are_those_measured_or_a_share_of_the_depth() -> None:
    assert voting_layers((), ("llama", 30, 576), ()) == (2, 5, 8)
    assert voting_layers((), ("llama", 32, 4096), ()) == tuple(range(2, 9))
    assert voting_layers((), ("gemma3_text", 8, 64), (5,)) == (5,)
    assert voting_layers((4,), ("gemma3_text", 8, 64), (5,)) == (4,)
    assert replace(SIZES, voting_layers=()).longest_read == 54
