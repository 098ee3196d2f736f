"""Layers that run few rows through compiled kernels, against the modules that they stand in for."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from transformers.models.llama.configuration_llama import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaForCausalLM
from transformers.models.qwen2.configuration_qwen2 import Qwen2Config
from transformers.models.qwen2.modeling_qwen2 import Qwen2ForCausalLM

from engines.local.few_rows import MAX_ROWS, quicken

SIZES: dict[str, Any] = {
    "vocab_size": 300,
    "hidden_size": 96,
    "intermediate_size": 200,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


def llama() -> nn.Module:
    torch.manual_seed(0)
    model: nn.Module = LlamaForCausalLM(LlamaConfig(**SIZES)).bfloat16()
    return model.eval()


def qwen2() -> nn.Module:
    """Its query, key and value projections have biases."""
    torch.manual_seed(0)
    model: nn.Module = Qwen2ForCausalLM(Qwen2Config(**SIZES)).bfloat16()
    for name, weight in model.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(weight)
    return model.eval()


@pytest.mark.parametrize("build", [llama, qwen2])
@pytest.mark.parametrize("num_rows", [1, 3, MAX_ROWS, MAX_ROWS + 1])
@pytest.mark.parametrize("num_threads", [1, 2])
def test_logits_differ_by_no_more_than_bfloat16_does(
    build: Callable[[], nn.Module], num_rows: int, num_threads: int
) -> None:
    model = build()
    quick = copy.deepcopy(model)
    quicken(quick, num_threads=num_threads)
    exact = copy.deepcopy(model).float()
    ids = torch.arange(num_rows)[None] * 7 % 300
    with torch.inference_mode():
        wanted = exact(ids).logits
        plain_error = float((model(ids).logits - wanted).abs().max())
        error = float((quick(ids).logits - wanted).abs().max())
    assert error <= 1.5 * plain_error


def test_every_layer_of_a_llama_is_quickened_but_the_embedding() -> None:
    model = llama()
    done = quicken(model, num_threads=1)
    # Per layer: 4 projections, the MLP with its 3 projections and activation, 2 norms.
    assert done == 2 * (4 + 5 + 2) + 2


def test_other_dtypes_and_hooked_layers_are_left_alone() -> None:
    assert quicken(llama().float(), num_threads=1) == 0
    hooked = nn.Linear(8, 8, dtype=torch.bfloat16)
    hooked.register_forward_hook(lambda *_: None)
    assert quicken(nn.Sequential(hooked), num_threads=1) == 0


class Shifted(nn.Module):
    """Looks like Llama's norm and computes Gemma's."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(16).bfloat16())
        self.variance_epsilon = 1e-6

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        return (wide * (1 + self.weight.float())).to(x.dtype)


class ShiftedRMSNorm(Shifted):
    pass


def test_a_layer_that_computes_something_else_than_its_kernel_keeps_its_own_code() -> None:
    assert quicken(nn.Sequential(ShiftedRMSNorm()), num_threads=1) == 0
