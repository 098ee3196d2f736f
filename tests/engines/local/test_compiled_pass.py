"""Whole layers as compiled kernels, against transformers, for every family that has them."""

from dataclasses import replace
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


def decoded_and_replayed(
    group: RingGroup, folder: Path
) -> tuple[list[list[float]], list[list[float]]]:
    """Log-probabilities before tokens 13 to 20: of one decoding in a batch, and of one that
    begins there with 12 tokens to replay."""
    driver = Driver(folder, group, SMALL_CHUNKS, dtype="bfloat16")
    assert isinstance(driver.executor._decoder._compiled, CompiledLayers)
    case = Case(prompt=prompt_of(123), num_tokens=20, chunk=40)
    through = [driver.first(1, case)]
    driver.first(2, Case(prompt=prompt_of(9), num_tokens=20))
    while len(through) < case.num_tokens:
        through.append(driver.decode(1, 2)[0])
    driver.executor.close(1)
    said = [one.token_id for one in through[:12]]
    again = driver.answer(replace(case, replay=said, num_tokens=8))
    return answer_of(through[12:]).logprobs, answer_of(again).logprobs


@pytest.mark.parametrize("num_ranks", [1, 2])
@pytest.mark.parametrize("family", ["llama", "mistral"])
def test_a_replayed_answer_goes_on_with_the_same_bits(
    wide_heads: dict[str, Path], family: str, num_ranks: int
) -> None:
    for through, again in on_ranks(num_ranks, decoded_and_replayed, wide_heads[family]):
        assert again == through


def test_a_model_whose_layers_are_not_proven_decodes_by_its_modules_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = save_family("llama", tmp_path, head_dim=16, hidden_act="gelu")
    decoder = load_model(folder, "bfloat16")
    with caplog.at_level("INFO"):
        decoder.quicken(1)
    assert decoder._compiled is None
    assert "compiled layers differ" in caplog.text
    assert "decode runs the model's modules" in caplog.text


@pytest.mark.parametrize("weight", ["model.norm.weight", "lm_head.weight"])
def test_an_output_layer_that_computes_something_else_is_found_out(
    wide_heads: dict[str, Path], weight: str
) -> None:
    module = load_model(wide_heads["qwen3"], "bfloat16")._module
    compiled = layers_of(module)
    assert compiled is not None
    assert agrees(module, compiled)
    path, _, name = weight.rpartition(".")
    generator = torch.Generator().manual_seed(7)
    other = torch.randn(module.get_parameter(weight).shape, generator=generator).bfloat16()
    setattr(module.get_submodule(path), name, nn.Parameter(other))
    assert not agrees(module, compiled)


def test_what_is_not_a_number_proves_nothing(wide_heads: dict[str, Path]) -> None:
    module = load_model(wide_heads["llama"], "bfloat16")._module
    compiled = layers_of(module)
    assert compiled is not None
    with torch.no_grad():
        module.get_parameter("model.layers.2.mlp.down_proj.weight")[3] = torch.nan
    assert not agrees(module, compiled)


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
