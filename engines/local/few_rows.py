"""Lets a model's layers run few bfloat16 rows through compiled kernels: what decode consists of.

Knows which Hugging Face modules have a kernel; does not know ranks, attention or sequences.
Torch's operators are made for many rows: with one row they leave half of the memory bandwidth
unused, and a gated MLP is six of them.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from engines.local.kernels import rows
from engines.local.kernels.bf16 import Bits

MAX_ROWS = 8
"""With more rows one matrix product of oneDNN is faster."""

Forward = Callable[[Tensor], Tensor]


def quicken(module: nn.Module, *, num_threads: int) -> int:
    """Give every layer that has a kernel a way around torch for few rows; returns how many.

    Each is compared with its own module first and left alone where the two differ by more than
    bfloat16's rounding. Layers on other devices, in other dtypes or with hooks are left alone.
    """
    parallel = num_threads > 1
    done: set[nn.Module] = set()
    for layer in list(module.modules()):
        if layer in done or not is_plain(layer):
            continue
        few = _kernel_for(layer, parallel)
        if few is None or not _agrees(layer, few):
            continue
        _reroute(layer, few)
        done.update(layer.modules())
    return len(done)


def _kernel_for(layer: nn.Module, parallel: bool) -> Forward | None:
    if type(layer) is nn.Linear:
        return _linear(layer, parallel)
    if all(type(getattr(layer, name, None)) is nn.Linear for name in GATED_MLP):
        return _gated_mlp(layer, parallel)
    if type(layer).__name__.endswith("RMSNorm") and hasattr(layer, "variance_epsilon"):
        return _rms_norm(layer)
    return None


GATED_MLP = ("gate_proj", "up_proj", "down_proj")


def is_plain(layer: nn.Module) -> bool:
    weights = list(layer.parameters())
    return (
        bool(weights)
        and all(
            type(w) is nn.Parameter
            and w.dtype == torch.bfloat16
            and w.device.type == "cpu"
            and w.is_contiguous()
            for w in weights
        )
        and not any(part._forward_pre_hooks or part._forward_hooks for part in layer.modules())
    )


def _linear(layer: nn.Linear, parallel: bool) -> Forward:
    run, weight_NK = rows.linear(parallel=parallel), bits(layer.weight)
    none = layer.bias is None
    bias_N = bits(layer.weight.new_zeros(layer.out_features) if none else layer.bias)

    def few(x: Tensor) -> Tensor:
        out = x.new_empty(*x.shape[:-1], len(weight_NK))
        run(_rows(x), weight_NK, bias_N, _rows(out))
        return out

    return few


def _gated_mlp(layer: nn.Module, parallel: bool) -> Forward | None:
    parts = [getattr(layer, name) for name in GATED_MLP]
    if any(part.bias is not None for part in parts):
        return None
    run = rows.gated_mlp(parallel=parallel)
    gate_MK, up_MK, down_KM = (bits(part.weight) for part in parts)

    def few(x: Tensor) -> Tensor:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
        run(_rows(x), gate_MK, up_MK, down_KM, _rows(out))
        return out

    return few


def _rms_norm(layer: nn.Module) -> Forward:
    weight, epsilon = layer.weight, layer.variance_epsilon
    assert isinstance(weight, Tensor)
    assert isinstance(epsilon, float)
    weight_K = bits(weight)

    def few(x: Tensor) -> Tensor:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
        rows.rms_norm(_rows(x), weight_K, epsilon, _rows(out))
        return out

    return few


def _agrees(layer: nn.Module, few: Forward) -> bool:
    """Also the warm-up: the first call of a kernel compiles it."""
    weight = next(layer.parameters())
    generator = torch.Generator().manual_seed(0)
    with torch.inference_mode():
        x = torch.randn(1, 2, weight.shape[-1], generator=generator).to(torch.bfloat16)
        expected, got = layer(x).float(), few(x).float()
    return bool(((got - expected).abs() <= 0.02 * expected.abs().max()).all())


def _reroute(layer: nn.Module, few: Forward) -> None:
    many: Forward = layer.forward

    def forward(x: Tensor) -> Tensor:
        num_rows = x.numel() // x.shape[-1]
        return few(x) if 0 < num_rows <= MAX_ROWS else many(x)

    layer.forward = forward


def _rows(x: Tensor) -> Bits:
    """All leading dimensions as one; bfloat16, and copied only if it is not contiguous."""
    array: Bits = x.contiguous().view(torch.uint16).numpy().reshape(-1, x.shape[-1])
    return array


def bits(weight: Tensor) -> Bits:
    """The same memory as NumPy sees it; bfloat16 and contiguous."""
    array: Bits = weight.detach().view(torch.uint16).numpy()
    return array
