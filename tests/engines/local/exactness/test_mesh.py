"""Tensor parallel x ring on four processes: what one process with transformers alone gives."""

from pathlib import Path

import pytest
import torch
from torch.distributed.tensor import DTensor

from engines.api import EngineRefused
from engines.gang.messages import Decode, Prefill, Span
from engines.local.executor import Executor
from engines.local.loading import load_model
from engines.local.ring import RingGroup
from tests.engines.local.driving import SMALL_CHUNKS, Case, Driver, spec_of
from tests.engines.local.exactness.matrix import (
    CHUNKS,
    Combination,
    Trace,
    compared,
    plain_traces,
    ring_traces,
)
from tests.engines.local.families import prompt_of
from tests.engines.local.ranks import on_ranks

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(240)]

FAMILIES = ("llama", "qwen3", "gemma3_text")
LENGTHS = (1, 3, 203)
WARM = spec_of(temperature=0.9, top_p=0.95, top_k=40, seed=11, frequency_penalty=0.2)


def combinations(ring_size: int) -> list[Combination]:
    return [
        Combination(family, ring_size, length, chunk)
        for family in FAMILIES
        for length in LENGTHS
        for chunk in CHUNKS
    ]


def traces_on_mesh(
    group: RingGroup, folders: dict[str, Path]
) -> tuple[int, dict[Combination, Trace]]:
    mesh = group.shared(2)
    return mesh.rank, ring_traces(mesh, folders, combinations(mesh.size))


@pytest.mark.parametrize("num_processes", [2, 4])
def test_logits_and_tokens_are_those_of_one_process(
    num_processes: int, families: dict[str, Path]
) -> None:
    wanted = on_ranks(1, plain_traces, families, [(f, n) for f in FAMILIES for n in LENGTHS])[0]
    by_process = on_ranks(num_processes, traces_on_mesh, families)
    assert [place for place, _ in by_process] == [i // 2 for i in range(num_processes)]
    for place, traces in by_process:
        assert len(traces) == len(FAMILIES) * len(LENGTHS) * len(CHUNKS)
        for one, trace in traces.items():
            error, same_tokens = compared(trace, wanted[one.family, one.length])
            assert len(trace.logits) == (len(trace.tokens) if place == 0 else 0)
            assert same_tokens, one
            assert error < 1e-5, one


def sampled(group: RingGroup, folder: Path, tensor_parallel: int) -> list[int]:
    driver = Driver(folder, group.shared(tensor_parallel), SMALL_CHUNKS)
    case = Case(prompt=prompt_of(150), num_tokens=12, chunk=64, sampling=WARM)
    return [one.token_id for one in driver.answer(case)]


def test_the_same_seed_gives_the_same_tokens_on_a_mesh(families: dict[str, Path]) -> None:
    wanted = on_ranks(1, sampled, families["qwen3"], 1)[0]
    assert on_ranks(4, sampled, families["qwen3"], 2) == [wanted] * 4


def chosen_spans(
    group: RingGroup, folder: Path, tensor_parallel: int
) -> list[tuple[list[int], list[Span], float]]:
    driver = Driver(folder, group.shared(tensor_parallel), SMALL_CHUNKS)
    answers = []
    for seed in range(3):
        case = Case(
            prompt=prompt_of(700, seed),
            num_tokens=2,
            sampling=spec_of(),
            hierarchical=True,
            question_start=685,
        )
        tokens = [one.token_id for one in driver.answer(case)]
        answers.append((tokens, *driver.spans()))
    return answers


def test_all_heads_have_a_say_in_the_choice_of_chunks(families: dict[str, Path]) -> None:
    wanted = on_ranks(1, chosen_spans, families["qwen3"], 1)[0]
    for given in on_ranks(4, chosen_spans, families["qwen3"], 2):
        for (tokens, spans, recall), (wanted_tokens, wanted_spans, wanted_recall) in zip(
            given, wanted, strict=True
        ):
            assert tokens == wanted_tokens
            assert [s.start for s in spans] == [s.start for s in wanted_spans]
            masses = [s.mass for s in wanted_spans]
            assert [s.mass for s in spans] == pytest.approx(masses, abs=1e-5)
            assert recall == pytest.approx(wanted_recall, abs=1e-5)


def told_by_all(group: RingGroup) -> float:
    return float(group.shared(2).tell_all(torch.tensor([float(group.rank + 7)])))


def test_what_world_rank_0_tells_is_heard_in_every_process() -> None:
    assert on_ranks(4, told_by_all) == [7.0] * 4


def aborts(group: RingGroup, folder: Path) -> tuple[list[int], list[bool], list[int]]:
    """Only the last process hears the cancel. (ranks as reported, aborted, tokens afterwards)."""
    driver = Driver(folder, group.shared(2), SMALL_CHUNKS)
    hears = group.rank == group.size - 1
    driver.open(1, Case(prompt=prompt_of(203)))
    prefill = Prefill(step_id=1, sequence_id=1, start=0, stop=203)
    done = [driver.executor.run(prefill, lambda _: hears)]
    driver.first(2, Case(prompt=prompt_of(20)))
    done.append(
        driver.executor.run(Decode(step_id=2, sequence_ids=[2]), lambda _: hears),
    )
    driver.executor.close(1)
    driver.executor.close(2)
    answer = driver.answer(Case(prompt=prompt_of(20), num_tokens=4))
    return [d.rank for d in done], [d.aborted for d in done], [one.token_id for one in answer]


def test_a_cancel_that_one_process_hears_aborts_the_step_on_all(families: dict[str, Path]) -> None:
    by_process = on_ranks(4, aborts, families["llama"])
    for rank, (reported, aborted, tokens) in enumerate(by_process):
        assert reported == [rank] * 2
        assert aborted == [True] * 2
        assert tokens == by_process[0][2]


def held(group: RingGroup, folder: Path) -> tuple[int, int, bool, tuple[int, ...]]:
    """(bytes of sharded weights, bytes of the memory behind them, embeddings still tied, KV)."""
    mesh = group.shared(2)
    decoder = load_model(folder, "float32", mesh.heads)
    module = decoder._module
    shares = {
        name: p.to_local()
        for name, p in module.named_parameters(remove_duplicate=False)
        if isinstance(p, DTensor)
    }
    embedding = shares["model.embed_tokens.weight"].data_ptr()
    tied = embedding == shares["lm_head.weight"].data_ptr()
    driver = Driver(folder, mesh, SMALL_CHUNKS)
    driver.executor = Executor(driver.config, mesh, decoder)
    driver.first(1, Case(prompt=prompt_of(30)))
    k_GSD, _ = driver.executor.sequences[1].kv.store.read(0, 0, 1)
    by_pointer = {share.data_ptr(): share for share in shares.values()}.values()
    return (
        sum(share.nbytes for share in by_pointer),
        sum(share.untyped_storage().nbytes() for share in by_pointer),
        tied,
        tuple(k_GSD.shape),
    )


def test_a_process_holds_its_share_of_weights_and_key_heads_only(
    families: dict[str, Path],
) -> None:
    whole = sum(
        p.nbytes
        for name, p in load_model(families["llama"], "float32")._module.named_parameters()
        if "norm" not in name
    )
    for share_bytes, held_bytes, tied, kv_shape in on_ranks(2, held, families["llama"]):
        assert share_bytes == whole // 2
        assert held_bytes == share_bytes
        assert tied
        assert kv_shape == (1, 1, 8)


def refusal(group: RingGroup, folder: Path, tensor_parallel: int) -> str:
    with pytest.raises(EngineRefused) as refused:
        load_model(folder, "float32", group.shared(tensor_parallel).heads)
    return str(refused.value)


def test_heads_that_do_not_divide_are_refused_with_the_numbers(
    families: dict[str, Path],
) -> None:
    for words in on_ranks(3, refusal, families["llama"], 3):
        assert "8 query heads and 2 key-value heads" in words
        assert "3 ranks" in words
        assert "2 would do" in words


def test_a_family_whose_plan_does_not_share_heads_is_refused(families: dict[str, Path]) -> None:
    for words in on_ranks(2, refusal, families["gpt_oss"], 2):
        assert "gpt_oss" in words
        assert "llama" in words
