"""Whole layers as compiled kernels, against transformers, for every family that has them."""

from pathlib import Path

import pytest
import torch
from torch import nn

from engines.local.compiled_layers import CompiledLayers, layers_of
from engines.local.compiled_proof import agrees
from engines.local.loading import load_model
from engines.local.ring import RingGroup
from tests.engines.local.driving import SMALL_CHUNKS, Case, Driver, answer_of
from tests.engines.local.families import plain_model, prompt_of, save_family
from tests.engines.local.ranks import on_ranks

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(240)]

COMPILED = ("llama", "qwen2", "qwen3", "smollm3", "mistral")
LENGTHS = (1, 123)  # the longer one is more than the window of the family that has one
FORCED = [7, 99, 30, 201]


@pytest.fixture(scope="module")
def wide_heads(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("wide")
    return {name: save_family(name, folder / name, head_dim=16) for name in COMPILED}


def decoded(group: RingGroup, folders: dict[str, Path]) -> dict[str, list[list[list[float]]]]:
    """Log-probabilities after each forced token; both prompts are decoded in one batch."""
    found = {}
    for name, folder in folders.items():
        driver = Driver(folder, group, SMALL_CHUNKS, dtype="bfloat16")
        assert isinstance(driver.executor._decoder._compiled, CompiledLayers)
        for i, length in enumerate(LENGTHS):
            driver.first(i, Case(prompt=prompt_of(length), num_tokens=9, chunk=40))
        rows: list[list[list[float]]] = [[] for _ in LENGTHS]
        for token in FORCED:
            for i in range(len(LENGTHS)):
                driver.executor.sequences[i].generated[-1] = token
            for i, one in enumerate(driver.decode(*range(len(LENGTHS)))):
                rows[i] += answer_of([one]).logprobs
        found[name] = rows
    return found


def plain(folder: Path, length: int, dtype: torch.dtype) -> torch.Tensor:
    ids = torch.tensor([prompt_of(length) + FORCED])
    model = nn.Module.to(plain_model(folder, "eager"), dtype)
    with torch.inference_mode():
        logits_TV: torch.Tensor = model(input_ids=ids).logits[0, length:].float()
        return logits_TV.log_softmax(-1)


@pytest.mark.parametrize("num_ranks", [1, 2, 3])
def test_decoded_logits_are_as_near_to_float32_as_bfloat16_can_be(
    wide_heads: dict[str, Path], num_ranks: int
) -> None:
    by_rank = on_ranks(num_ranks, decoded, wide_heads)
    assert all(rank == by_rank[0] for rank in by_rank)
    for name, folder in wide_heads.items():
        for i, length in enumerate(LENGTHS):
            exact = plain(folder, length, torch.float32)
            allowed = (plain(folder, length, torch.bfloat16) - exact).abs().mean()
            error = (torch.tensor(by_rank[0][name][i]) - exact).abs().mean()
            assert error <= 1.2 * allowed, (name, length)


def test_a_layer_that_computes_something_else_is_found_out(tmp_path: Path) -> None:
    model = load_model(save_family("llama", tmp_path, head_dim=16, hidden_act="gelu"), "bfloat16")
    compiled = layers_of(model._module)
    assert compiled is not None
    assert not agrees(model._module, compiled)


@pytest.mark.parametrize(("family", "dtype"), [("gemma3_text", "bfloat16"), ("llama", "float32")])
def test_other_shapes_and_dtypes_keep_their_modules(
    tmp_path: Path, family: str, dtype: str
) -> None:
    model = load_model(save_family(family, tmp_path, head_dim=16), dtype)
    assert layers_of(model._module) is None
