"""A BERT encoder whose linear layers multiply bytes; knows one family of models and no texts.

Windows of a batch lie one behind the other without padding; attention takes them one at a time, as
two bfloat16 products that stay in a core's own cache. Weights have one scale per output,
activations one per row (see `kernels`). Where a norm feeds a layer, its channels are first divided
by what makes some of them large and the weights multiplied by it (SmoothQuant, arXiv 2211.10438):
MiniLM's few outlier channels would otherwise leave the others no precision.

Shapes as in `kernels`: T tokens, D hidden width, M inner width, L and P tokens of a window without
and with padding, H heads, E width of a head.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn
from transformers import BertModel
from transformers.models.bert.modeling_bert import BertLayer

from retrieval.embedding import kernels
from retrieval.embedding.kernels import Bits, Bytes, Floats

SMOOTHING = 0.65
"""How much of the spread moves from activations to weights. At .5, .65 and .8 the mean of 1 - cos
to float32 vectors is 9.1e-4, 7.7e-4 and 8.2e-4; without, 2.0e-3."""

Peaks = Mapping[int, Tensor]
"""The largest magnitude of every input channel, by `id` of the linear layer that reads them."""


class ByteProduct:
    """rows · weightᵀ for rows of bytes; what comes out is still to be multiplied by row scales."""

    def __init__(self, weight: Tensor, *, zero: int) -> None:
        scales = weight.abs().amax(1).clamp(min=1e-12) / 127
        levels = (weight / scales[:, None]).round().clamp(-127, 127).to(torch.int8)
        self._packed: Tensor = torch.ops.onednn.qlinear_prepack(levels.contiguous(), None)
        self._scales = scales.float().contiguous()
        self._weight_zeros = torch.zeros(len(scales), dtype=torch.int64)
        self._zero = zero

    def __call__(self, rows_TK: Bytes) -> Bits:
        product: Tensor = torch.ops.onednn.qlinear_pointwise(
            torch.from_numpy(rows_TK),
            1.0,
            self._zero,
            self._packed,
            self._scales,
            self._weight_zeros,
            None,
            1.0,
            0,
            torch.bfloat16,
            "none",
            [],
            "none",
        )
        return bits_of(product)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layer:
    """`*_norm` are the bias of the product before, gamma and beta."""

    heads: ByteProduct
    heads_inverse_D: Floats
    heads_bias_factor_23D: Floats
    joined: ByteProduct
    joined_norm_3D: Floats
    inner: ByteProduct
    inner_inverse_D: Floats
    inner_bias_M: Floats
    outer: ByteProduct
    outer_norm_3D: Floats


class _Room:
    """What attention over one window writes to. Rows behind the window hold zeros or what a longer
    one left there: numbers that `powers` gives no weight.

    Windows of about one length and all layers share it: fresh memory for each took a tenth of the
    time of a batch whose windows differ in length.
    """

    def __init__(self, padded: int, num_heads: int, head_dim: int) -> None:
        self.heads_3HPE = torch.zeros(3, num_heads, padded, head_dim, dtype=torch.bfloat16)
        self.scores_HPP = torch.empty(num_heads, padded, padded, dtype=torch.bfloat16)
        self.context_HPE = torch.empty(num_heads, padded, head_dim, dtype=torch.bfloat16)
        self.sums_HP = np.empty((num_heads, padded), np.float32)

    def attend(self, num_keys: int) -> None:
        queries, keys, values = self.heads_3HPE
        torch.bmm(queries, keys.transpose(1, 2), out=self.scores_HPP)
        kernels.powers(bits_of(self.scores_HPP), num_keys, self.sums_HP)
        torch.bmm(self.scores_HPP, values, out=self.context_HPE)


class _Rooms:
    """The rooms of one pass over the layers, by padded length."""

    def __init__(self, num_heads: int, head_dim: int) -> None:
        self._num_heads = num_heads
        self._head_dim = head_dim
        self._rooms: dict[int, _Room] = {}

    def for_window(self, length: int) -> _Room:
        padded = -(-length // kernels.PAD) * kernels.PAD
        if padded not in self._rooms:
            self._rooms[padded] = _Room(padded, self._num_heads, self._head_dim)
        return self._rooms[padded]


class ByteEncoder:
    """Safe for concurrent use. `build` it."""

    def __init__(self, bert: BertModel, layers: Sequence[_Layer]) -> None:
        self._embeddings = bert.embeddings
        self._layers = tuple(layers)
        self._num_heads: int = bert.config.num_attention_heads
        self._epsilon: float = bert.config.layer_norm_eps
        self._width: int = bert.config.hidden_size
        self._head_dim = self._width // self._num_heads

    @classmethod
    def build(cls, bert: BertModel, peaks: Peaks) -> "ByteEncoder":
        """Copies what it needs of the layers, so that they can be dropped."""
        with torch.inference_mode():
            return cls(bert, [_layer(one, peaks) for one in layers_of(bert)])

    def mean_vectors(self, windows: Sequence[Sequence[int]]) -> Floats:
        """The mean over each window's tokens of the last layer: [windows, D], in order."""
        lengths = [len(window) for window in windows]
        stops = np.cumsum(lengths)
        spans = [slice(stop - length, stop) for length, stop in zip(lengths, stops, strict=True)]
        rooms = _Rooms(self._num_heads, self._head_dim)
        with torch.inference_mode():
            x_TD = self._embedded(windows)
            for layer in self._layers:
                self._attend(layer, x_TD, spans, rooms)
                self._think(layer, x_TD)
        return np.stack([x_TD[span].mean(axis=0) for span in spans])

    def _embedded(self, windows: Sequence[Sequence[int]]) -> Floats:
        parts = self._embeddings
        ids = np.fromiter(chain.from_iterable(windows), dtype=np.int64)
        places = np.concatenate([np.arange(len(window)) for window in windows])
        x_TD = parts.word_embeddings(torch.from_numpy(ids))
        x_TD += parts.position_embeddings(torch.from_numpy(places))
        embedded: Floats = parts.LayerNorm(x_TD + parts.token_type_embeddings.weight[0]).numpy()
        return embedded

    def _attend(self, layer: _Layer, x_TD: Floats, spans: Sequence[slice], rooms: _Rooms) -> None:
        rows_TD, scale_T = np.empty(x_TD.shape, np.uint8), np.empty(len(x_TD), np.float32)
        kernels.smoothed_rows(x_TD, layer.heads_inverse_D, rows_TD, scale_T)
        product_T3D = layer.heads(rows_TD)
        split, join = kernels.split_heads(self._head_dim), kernels.join_heads(self._head_dim)
        for span in spans:
            length = span.stop - span.start
            room = rooms.for_window(length)
            heads_3HPE = bits_of(room.heads_3HPE)
            split(product_T3D[span], scale_T[span], layer.heads_bias_factor_23D, heads_3HPE)
            room.attend(length)
            join(bits_of(room.context_HPE), room.sums_HP, rows_TD[span], scale_T[span])
        product_TD = layer.joined(rows_TD)
        kernels.add_normed(x_TD, product_TD, scale_T, layer.joined_norm_3D, self._epsilon)

    def _think(self, layer: _Layer, x_TD: Floats) -> None:
        rows_TD, scale_T = np.empty(x_TD.shape, np.uint8), np.empty(len(x_TD), np.float32)
        kernels.smoothed_rows(x_TD, layer.inner_inverse_D, rows_TD, scale_T)
        product_TM = layer.inner(rows_TD)
        rows_TM, inner_scale_T = np.empty(product_TM.shape, np.uint8), np.empty_like(scale_T)
        kernels.gelu_rows(product_TM, scale_T, layer.inner_bias_M, rows_TM, inner_scale_T)
        product_TD = layer.outer(rows_TM)
        kernels.add_normed(x_TD, product_TD, inner_scale_T, layer.outer_norm_3D, self._epsilon)


def bits_of(tensor: Tensor) -> Bits:
    """A contiguous bfloat16 tensor's own memory."""
    bits: Bits = tensor.view(torch.uint16).numpy()
    return bits


def layers_of(bert: BertModel) -> "list[BertLayer]":
    """torch's ModuleList does not say what it holds."""
    return cast("list[BertLayer]", list(bert.encoder.layer))


def _layer(layer: BertLayer, peaks: Peaks) -> _Layer:
    attention, output = layer.attention.self, layer.attention.output
    inner, outer = layer.intermediate.dense, layer.output
    parts = (attention.query, attention.key, attention.value)
    heads_weight = torch.cat([part.weight for part in parts])
    heads_bias = torch.cat([part.bias for part in parts])
    heads_spread = _spread(peaks[id(attention.query)], heads_weight)
    inner_spread = _spread(peaks[id(inner)], inner.weight)
    factor = torch.ones_like(heads_bias)
    # Scores become powers of two, so queries take 1 / sqrt(head size) and log2 e.
    factor[: len(factor) // 3] = kernels.LOG2_E / attention.attention_head_size**0.5
    return _Layer(
        heads=ByteProduct(heads_weight * heads_spread, zero=kernels.SIGNED_ZERO),
        heads_inverse_D=_floats(1 / heads_spread),
        heads_bias_factor_23D=_floats(torch.stack([heads_bias, factor])),
        joined=ByteProduct(output.dense.weight, zero=kernels.SIGNED_ZERO),
        joined_norm_3D=_norm(output.dense, output.LayerNorm),
        inner=ByteProduct(inner.weight * inner_spread, zero=kernels.SIGNED_ZERO),
        inner_inverse_D=_floats(1 / inner_spread),
        inner_bias_M=_floats(inner.bias),
        outer=ByteProduct(outer.dense.weight, zero=kernels.GELU_ZERO),
        outer_norm_3D=_norm(outer.dense, outer.LayerNorm),
    )


def _spread(peaks_D: Tensor, weight: Tensor) -> Tensor:
    heavy_D = weight.abs().amax(0).clamp(min=1e-4)
    spread_D = peaks_D.clamp(min=1e-4) ** SMOOTHING / heavy_D ** (1 - SMOOTHING)
    return spread_D / spread_D.mean()


def _norm(dense: nn.Linear, norm: nn.LayerNorm) -> Floats:
    return _floats(torch.stack([dense.bias, norm.weight, norm.bias]))


def _floats(tensor: Tensor) -> Floats:
    floats: Floats = tensor.detach().float().contiguous().numpy().copy()
    return floats
