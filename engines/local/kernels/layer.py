"""A decoder layer of Llama's shape for a few rows, in two kernels around its attention.

Knows arrays; does not know modules, ranks or where keys lie. Weights are bfloat16, everything in
between is float32, so that nothing is rounded but what is stored as a key or a value.

Shapes: T rows, K hidden size, H query heads, G key heads, D head dim, M inner width of the MLP,
V vocabulary, N ranks, X floats of an exchange. Suffix order is dim order.

`x_TK` is the residual stream. Each rank has a share of the MLP's inner width and of the
vocabulary; `parts_NX` are the ranks' sums over their shares of the layer before, [N, T * K], and
are added in the order of ranks, so that all ranks hold the same bits.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple, Protocol

import numpy as np
from numba import prange

from engines.local.kernels.bf16 import Bits, Floats, compiled, exp, narrow, widen
from engines.local.kernels.merge import merge


class Projections(NamedTuple):
    """What makes queries, keys and values of a layer's input. Biases and the weights of the
    heads' own norms are empty where there are none."""

    norm_K: Bits
    q_NK: Bits
    k_NK: Bits
    v_NK: Bits
    q_bias_N: Bits
    k_bias_N: Bits
    v_bias_N: Bits
    q_norm_D: Bits
    k_norm_D: Bits
    epsilon: float


class Rest(NamedTuple):
    """What follows attention in a layer."""

    o_KN: Bits
    o_bias_K: Bits
    norm_K: Bits
    gate_MK: Bits
    up_MK: Bits
    down_KM: Bits
    epsilon: float


class Enter(Protocol):
    def __call__(  # noqa: PLR0913
        self,
        x_TK: Floats,
        parts_NX: Floats,
        weights: Projections,
        turn_2TD: Floats,
        scale: float,
        q_THD: Floats,
        k_TGD: Bits,
        v_TGD: Bits,
    ) -> None:
        """Add the parts to `x_TK`; fill queries (scaled), keys and values, turned by `turn_2TD`:
        the cosines and sines of RoPE, or nothing at all in a layer without positions."""
        ...


class Leave(Protocol):
    def __call__(
        self,
        x_TK: Floats,
        gathered_NX: Floats,
        weights: Rest,
        first: int,
        last: int,
        part_TK: Floats,
    ) -> bool:
        """Merge the ranks' attention results, add the output projection to `x_TK` and fill
        `part_TK`: what the inner columns [first, last) of the MLP give. True, and nothing done,
        if a rank wants to stop."""
        ...


Finish = Callable[[Floats, Floats, Bits, float, Bits, Floats], None]
"""(x_TK, parts_NX, norm_K, epsilon, output_VK, logits_TV), the last two a share of the rows."""


@lru_cache
def enter(*, parallel: bool) -> Enter:
    @compiled(parallel=parallel)
    def run(  # noqa: PLR0913
        x_TK: Floats,
        parts_NX: Floats,
        weights: Projections,
        turn_2TD: Floats,
        scale: float,
        q_THD: Floats,
        k_TGD: Bits,
        v_TGD: Bits,
    ) -> None:
        _add_parts(x_TK, parts_NX)
        y_TK = _normed(x_TK, weights.norm_K, weights.epsilon)
        num_rows, num_q, num_k = x_TK.shape[0], weights.q_NK.shape[0], weights.k_NK.shape[0]
        wide_TN = np.empty((num_rows, num_q + 2 * num_k), np.float32)
        for n in prange(num_q + 2 * num_k):
            for t in range(num_rows):
                wide_TN[t, n] = _projected(y_TK[t], weights, n)
        _spread(wide_TN, weights, turn_2TD, np.float32(scale), q_THD, k_TGD, v_TGD)

    return run


@lru_cache
def leave(*, parallel: bool) -> Leave:
    @compiled(parallel=parallel)
    def run(
        x_TK: Floats,
        gathered_NX: Floats,
        weights: Rest,
        first: int,
        last: int,
        part_TK: Floats,
    ) -> bool:
        num_rows, width = x_TK.shape
        attended_TN = np.empty((num_rows, weights.o_KN.shape[1]), np.float32)
        if _merged(gathered_NX, attended_TN):
            return True
        for k in prange(width):
            for t in range(num_rows):
                x_TK[t, k] += dot(attended_TN[t], weights.o_KN[k]) + _bias(weights.o_bias_K, k)
        y_TK = _normed(x_TK, weights.norm_K, weights.epsilon)
        gate_MK, up_MK = weights.gate_MK[first:last], weights.up_MK[first:last]
        inner_TM = np.empty((num_rows, last - first), np.float32)
        for m in prange(last - first):
            for t in range(num_rows):
                gate = dot(y_TK[t], gate_MK[m])
                inner_TM[t, m] = gate / (np.float32(1) + exp(-gate)) * dot(y_TK[t], up_MK[m])
        for k in prange(width):
            for t in range(num_rows):
                part_TK[t, k] = dot(inner_TM[t], weights.down_KM[k, first:last])
        return False

    return run


@lru_cache
def finish(*, parallel: bool) -> Finish:
    @compiled(parallel=parallel)
    def run(
        x_TK: Floats,
        parts_NX: Floats,
        norm_K: Bits,
        epsilon: float,
        output_VK: Bits,
        logits_TV: Floats,
    ) -> None:
        _add_parts(x_TK, parts_NX)
        y_TK = _normed(x_TK, norm_K, epsilon)
        for v in prange(output_VK.shape[0]):
            for t in range(x_TK.shape[0]):
                logits_TV[t, v] = dot(y_TK[t], output_VK[v])

    return run


@compiled()
def dot(x_K: Floats, weight_K: Bits) -> np.float32:
    total = np.float32(0)
    for k in range(weight_K.shape[0]):
        total += x_K[k] * widen(weight_K[k])
    return total


@compiled()
def _add_parts(x_TK: Floats, parts_NX: Floats) -> None:
    num_rows, width = x_TK.shape
    for n in range(parts_NX.shape[0]):
        for t in range(num_rows):
            part_K = parts_NX[n, t * width : (t + 1) * width]
            for k in range(width):
                x_TK[t, k] += part_K[k]


@compiled()
def _normed(x_TK: Floats, weight_K: Bits, epsilon: float) -> Floats:
    """RMS norm."""
    y_TK = np.empty(x_TK.shape, np.float32)
    width = x_TK.shape[1]
    for t in range(x_TK.shape[0]):
        squares = np.float32(0)
        for k in range(width):
            squares += x_TK[t, k] * x_TK[t, k]
        unit = np.float32(1) / np.sqrt(squares / np.float32(width) + np.float32(epsilon))
        for k in range(width):
            y_TK[t, k] = x_TK[t, k] * unit * widen(weight_K[k])
    return y_TK


@compiled()
def _projected(y_K: Floats, weights: Projections, n: int) -> np.float32:
    """Output n of the queries', keys' and values' projections laid one behind the other."""
    at = np.int64(n)  # parallel loops count in unsigned numbers, which mix with no others
    num_q, num_k = weights.q_NK.shape[0], weights.k_NK.shape[0]
    if at < num_q:
        return dot(y_K, weights.q_NK[at]) + _bias(weights.q_bias_N, at)
    if at < num_q + num_k:
        return dot(y_K, weights.k_NK[at - num_q]) + _bias(weights.k_bias_N, at - num_q)
    at -= num_q + num_k
    return dot(y_K, weights.v_NK[at]) + _bias(weights.v_bias_N, at)


@compiled()
def _spread(  # noqa: PLR0913
    wide_TN: Floats,
    weights: Projections,
    turn_2TD: Floats,
    scale: np.float32,
    q_THD: Floats,
    k_TGD: Bits,
    v_TGD: Bits,
) -> None:
    """Norm and turn what was projected, and put it where it belongs."""
    num_q, num_k = weights.q_NK.shape[0], weights.k_NK.shape[0]
    for t in range(wide_TN.shape[0]):
        q_HD = wide_TN[t, :num_q].reshape(q_THD.shape[1:])
        k_GD = wide_TN[t, num_q : num_q + num_k].reshape(k_TGD.shape[1:])
        v_GD = wide_TN[t, num_q + num_k :].reshape(v_TGD.shape[1:])
        _prepare_heads(q_HD, weights.q_norm_D, weights.epsilon, turn_2TD[:, t])
        _prepare_heads(k_GD, weights.k_norm_D, weights.epsilon, turn_2TD[:, t])
        q_THD[t] = q_HD * scale
        _round(k_GD, k_TGD[t])
        _round(v_GD, v_TGD[t])


@compiled()
def _merged(gathered_NX: Floats, attended_TN: Floats) -> bool:
    """The ranks' attention results as one; true if a rank wants to stop."""
    num_pairs = gathered_NX.shape[1] - 1 - attended_TN.size  # of a row and a head
    out_RD = attended_TN.reshape(num_pairs, attended_TN.size // num_pairs)
    return merge(gathered_NX, out_RD, np.empty(num_pairs, np.float32))


@compiled()
def _bias(bias_N: Bits, n: int | np.int64) -> np.float32:
    return widen(bias_N[n]) if bias_N.shape[0] > 0 else np.float32(0)


@compiled()
def _prepare_heads(x_HD: Floats, norm_D: Bits, epsilon: float, turn_2D: Floats) -> None:
    """The heads' own norm, if there is one; then RoPE, which turns the halves of a head into each
    other."""
    if norm_D.shape[0] > 0:
        x_HD[:] = _normed(x_HD, norm_D, epsilon)
    half = turn_2D.shape[1] // 2
    for h in range(x_HD.shape[0]):
        for d in range(half):
            low, high = x_HD[h, d], x_HD[h, half + d]
            x_HD[h, d] = low * turn_2D[0, d] - high * turn_2D[1, d]
            x_HD[h, half + d] = high * turn_2D[0, half + d] + low * turn_2D[1, half + d]


@compiled()
def _round(x_GD: Floats, out_GD: Bits) -> None:
    for g in range(x_GD.shape[0]):
        for d in range(x_GD.shape[1]):
            out_GD[g, d] = narrow(x_GD[g, d])
