"""Proves that a model's compiled layers compute what its modules do, one layer after the other.

Knows how to run both on the same few tokens; does not know ranks.
"""

import numpy as np
import torch
from torch import Tensor, nn

from engines.local.compiled_layers import CompiledLayers
from engines.local.compiled_pass import CompiledPass
from engines.local.hook import AttentionPass, LayerCall
from engines.local.kv import ShardedKv
from engines.local.placement import Run
from engines.local.replicated import SequenceRows
from engines.local.ring import RingGroup
from engines.local.ring_pass import RingPass

NUM_TOKENS = 4
TOLERANCE = 0.04
"""Of the largest value that a layer adds, and of the largest logit. A layer rounds to bfloat16,
1/256 at most, some ten times; one that lacks a norm or a bias, or turns heads otherwise, is off by
about all of it."""


def agrees(module: nn.Module, compiled: CompiledLayers) -> bool:
    """Also the warm-up: the first call of a kernel compiles it, or reads it from disk."""
    layers = module.get_submodule("model.layers")
    generator = torch.Generator().manual_seed(0)
    width = len(compiled.norm_K)
    with torch.inference_mode():
        x_TK = torch.randn(NUM_TOKENS, width, generator=generator).bfloat16()
        for number, layer in enumerate(layers.children()):
            listening = Listening()
            expected_TK = _by_module(layer, compiled, x_TK, listening) - x_TK.float()
            got_TK = _by_kernels(number, compiled, x_TK) - x_TK.float()
            if not _near(got_TK, expected_TK):
                return False
            if listening.window != compiled.layers[number].window:
                return False
        return _near(_output_by_kernel(compiled, x_TK), _output_by_module(module, x_TK))


def _near(got: Tensor, expected: Tensor) -> bool:
    """False for anything that is not a number."""
    return bool((got - expected).abs().max() <= TOLERANCE * expected.abs().max())


class Listening:
    """Attends, and keeps which window the layer asked for: too few tokens to see it work."""

    def __init__(self) -> None:
        kv = ShardedKv(rank=0, num_ranks=1, capacity=NUM_TOKENS)
        self._pass = RingPass(kv, ((Run(0, NUM_TOKENS),),), _alone(), _never)
        self.window: int | None = None

    def attend(self, call: LayerCall) -> tuple[Tensor, Tensor]:
        self.window = call.window
        return self._pass.attend(call)


def _by_module(
    layer: nn.Module, compiled: CompiledLayers, x_TK: Tensor, attending: AttentionPass
) -> Tensor:
    positions_1T = torch.arange(NUM_TOKENS)[None]
    out = layer(
        x_TK[None],
        position_ids=positions_1T,
        position_embeddings=compiled.turn(x_TK, positions_1T),
        attending=attending,
    )
    out_1TK: Tensor = out[0] if isinstance(out, tuple) else out
    return out_1TK[0].float()


def _by_kernels(number: int, compiled: CompiledLayers, x_TK: Tensor) -> Tensor:
    kv = ShardedKv(rank=0, num_ranks=1, capacity=NUM_TOKENS)
    rows: list[Tensor] = []
    for t in range(NUM_TOKENS):
        new = ((Run(t, 1),),)
        one = CompiledPass(compiled, [SequenceRows(kv, new)], _alone(), _never)
        row_1K = x_TK[t : t + 1].float().numpy()
        nothing_0X = np.empty((0, row_1K.size), np.float32)
        parts_1X = one.layer(number, row_1K, nothing_0X, one.turn(torch.tensor([t])))
        rows.append(torch.from_numpy(row_1K + parts_1X))
        kv.commit(new)
    return torch.cat(rows)


def _output_by_module(module: nn.Module, x_TK: Tensor) -> Tensor:
    """Logits of the last row."""
    norm, head = module.get_submodule("model.norm"), module.get_submodule("lm_head")
    logits_V: Tensor = head(norm(x_TK[-1]))
    return logits_V.float()


def _output_by_kernel(compiled: CompiledLayers, x_TK: Tensor) -> Tensor:
    kv = ShardedKv(rank=0, num_ranks=1, capacity=1)
    one = CompiledPass(compiled, [SequenceRows(kv, ((Run(0, 1),),))], _alone(), _never)
    row_1K = x_TK[-1:].float().numpy()
    return one.output(row_1K, np.empty((0, row_1K.size), np.float32))[0]


def _alone() -> RingGroup:
    return RingGroup(None, rank=0, size=1)


def _never() -> bool:
    return False
