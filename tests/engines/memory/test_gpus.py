"""What GPUs have left, as their driver tells, and the KV that this grants."""

from pathlib import Path

import pytest

from engines.api import TooLittleMemory
from engines.config import EngineConfig
from engines.memory import free_gpu_bytes, gpu_kv_budget_tokens, kv_bytes_per_token, shape_of
from engines.memory.devices import GIB
from engines.memory.gpus import MIB
from tests.engines.memory.published import LLAMA_8B

SHAPE = shape_of(LLAMA_8B)


def driver(folder: Path, lines: str) -> None:
    """A stand-in that writes down its arguments and tells this."""
    script = folder / "nvidia-smi"
    script.write_text(f'#!/bin/sh\necho "$@" > {folder}/asked\nprintf "{lines}"\n')
    script.chmod(0o755)


def test_the_gpu_with_the_least_memory_left_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver(tmp_path, r"81000\n79000\n5\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert free_gpu_bytes(2, {}) == 79_000 * MIB
    assert "--id" not in (tmp_path / "asked").read_text()
    free_gpu_bytes(2, {"CUDA_VISIBLE_DEVICES": "4,7"})
    assert "--id=4,7" in (tmp_path / "asked").read_text()
    with pytest.raises(ValueError, match="4 ranks need as many GPUs; this host shows 3"):
        free_gpu_bytes(4, {})


@pytest.mark.parametrize("lines", [None, "[N/A]"])
def test_gpus_that_cannot_be_asked_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: str | None
) -> None:
    if lines is not None:
        driver(tmp_path, lines)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin" if lines else str(tmp_path))
    with pytest.raises(ValueError, match="cannot be asked for their memory"):
        free_gpu_bytes(1, {})


def config(**changes: object) -> EngineConfig:
    values: dict[str, object] = {"dtype": "bfloat16", "device": "cuda", **changes}
    return EngineConfig(model_dir=Path("m"), model_name="m", **values)  # type: ignore[arg-type]


def test_kv_takes_a_share_of_what_weights_and_runtime_leave() -> None:
    one, two = (gpu_kv_budget_tokens(SHAPE, config(ranks=n), 79 * GIB) for n in (1, 2))
    room = (79 * GIB - 2 * 8_030_261_248) // kv_bytes_per_token(SHAPE, "bfloat16")
    assert 0.65 * room < one < 0.8 * room
    assert 1.9 * one < two < 2 * one
    split = config(ranks=2, tensor_parallel=2)
    assert gpu_kv_budget_tokens(SHAPE, split, 79 * GIB) > two


def test_a_budget_or_a_model_that_does_not_fit_is_refused_with_the_numbers() -> None:
    with pytest.raises(TooLittleMemory, match=r"on each GPU, needs 1[6-9]\.\d GB .* 12\.9 GB"):
        gpu_kv_budget_tokens(SHAPE, config(ranks=2), 12 * GIB)
    with pytest.raises(TooLittleMemory):
        gpu_kv_budget_tokens(SHAPE, config(ranks=1, kv_budget_bytes=70 * GIB), 79 * GIB)
    fits = config(ranks=1, kv_budget_bytes=40 * GIB)
    assert gpu_kv_budget_tokens(SHAPE, fits, 79 * GIB) == 40 * GIB // 131_072
