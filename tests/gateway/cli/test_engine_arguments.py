"""What engine the command line asks for, and that `ringway up` hands all of it on."""

import argparse
from pathlib import Path

import pytest

from engines.config import EngineConfig, HierarchicalConfig, SegmentsConfig
from engines.models.catalog import Model
from gateway.cli.engine_arguments import (
    SETTINGS,
    add_model_arguments,
    arguments_for,
    best_dtype,
    engine_config,
    num_bytes,
    size,
)

MODEL = Model("m", Path("/models/m"))


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_model_arguments(parser)
    return parser.parse_args(words)


ALL = (
    *("--ranks", "4", "--threads", "3", "--device", "cuda", "--dtype", "float32"),
    *("--kv-budget", "4GiB", "--tensor-parallel", "2", "--prefill-chunk", "1024"),
    *("--max-running", "3", "--max-queued", "7", "--step-timeout", "2.5"),
    *("--chunk-tokens", "512", "--top-k", "6", "--least-recall", "0.25", "--most-k", "9"),
    *("--segment-memory", "1.5GiB", "--segment-disk", "0"),
)


def test_every_flag_reaches_the_configuration() -> None:
    assert engine_config(parsed(*ALL), MODEL) == EngineConfig(
        model_dir=MODEL.folder,
        model_name="m",
        ranks=4,
        threads_per_rank=3,
        device="cuda",
        dtype="float32",
        kv_budget_bytes=4 << 30,
        tensor_parallel=2,
        prefill_chunk_tokens=1024,
        max_running=3,
        max_queued=7,
        step_timeout_s=2.5,
        hierarchical=HierarchicalConfig(chunk_tokens=512, top_k=6, least_recall=0.25, most_k=9),
        segments=SegmentsConfig(ram_bytes=3 << 29, disk_bytes=0),
    )
    assert {one.flag for one in SETTINGS} <= set(ALL)


def test_without_flags_the_configurations_own_defaults_hold() -> None:
    config = engine_config(parsed("--threads", "1"), MODEL)
    assert config == EngineConfig(
        model_dir=MODEL.folder, model_name="m", ranks=2, dtype=best_dtype("cpu")
    )


@pytest.mark.parametrize("words", [(), ALL])
def test_the_engines_process_gets_what_was_typed(words: tuple[str, ...]) -> None:
    typed = parsed(*words)
    handed_on = parsed(*arguments_for(typed, MODEL))
    assert engine_config(handed_on, MODEL) == engine_config(typed, MODEL)
    assert handed_on.model == str(MODEL.folder)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--segment-memory", "much"), "--segment-memory: 'much' is no size"),
        (("--segment-disk", "-1"), "--segment-disk: '-1' is no size"),
        (("--top-k", "few"), "--top-k: 'few' is no whole number"),
        (("--least-recall", "all"), "--least-recall: 'all' is no number"),
        (("--least-recall", "2"), "least_recall must lie in"),
        (("--max-running", "0"), "max_running"),
        (("--ranks", "0"), "--ranks must be at least 1"),
        (("--threads", "0"), "--threads must be at least 1"),
        (("--ranks", "3", "--tensor-parallel", "2"), "multiple of tensor_parallel"),
    ],
)
def test_what_cannot_be_is_refused_by_name(words: tuple[str, ...], told: str) -> None:
    joined = [f"{words[i]}={words[i + 1]}" for i in range(0, len(words), 2)]
    with pytest.raises(ValueError, match=told):
        engine_config(parsed(*joined), MODEL)


def test_help_names_the_defaults_in_readable_units() -> None:
    told = {one.flag: one.told for one in SETTINGS}
    assert told["--segment-memory"].endswith("(default: 512MiB)")
    assert told["--segment-disk"].endswith("(default: 8GiB)")
    assert told["--max-queued"].endswith("(default: 64)")
    assert "None" not in "".join(told.values())


@pytest.mark.parametrize("count", [0, 1, 1023, 1 << 10, 3 << 29, 1 << 40])
def test_a_size_is_read_back_as_it_is_written(count: int) -> None:
    assert num_bytes(size(count)) == count
