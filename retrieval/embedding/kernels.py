"""What stands between the integer products of an encoder, compiled: scales, norms, gelu, softmax.

Knows arrays; does not know models or torch. bfloat16 travels as its 16 bits, which NumPy can hold.
A row of activations is quantised by its own largest value, so no text can overflow a scale that
was measured on another: value = (byte - zero) * row scale.

Shapes: T tokens, D hidden width, M inner width; of one window L tokens, P tokens when padded; H
heads, E width of a head. Suffix order is dim order.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, ParamSpec, Protocol, TypeVar, cast

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

P = ParamSpec("P")
R = TypeVar("R")

Bits = NDArray[np.uint16]
Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]

SIGNED_ZERO = 128
"""Zero of rows with values on both sides."""

GELU_ZERO = 16
"""Zero of rows after gelu, which is never below -0.17: most bytes are for what is above."""

LOG2_E = 1.4426950408889634

PAD = 16
"""Windows are padded to a multiple of this in attention: one vector of float32."""

HIGHEST_SCORE = 100.0
"""Scores are powers of two; sums of 2^100 stay finite. No trained model comes near."""


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compiled at the first call and kept on disk, where there is a disk to write to.

    `fastmath` lets sums be reordered, which is what makes them vector sums; what a kernel does
    with nan or infinity is undefined.
    """
    compiler: Any = njit(fastmath=True, nogil=True, cache=True)
    try:
        return cast("Callable[P, R]", compiler(function))
    except RuntimeError:
        return cast("Callable[P, R]", njit(fastmath=True, nogil=True)(function))


def _inlined(function: Callable[P, R]) -> Callable[P, R]:
    compiler: Any = njit(inline="always", fastmath=True)
    return cast("Callable[P, R]", compiler(function))


def _reinterpreted(from_type: Any, to_type: Any, shift: int = 0) -> Any:
    """An intrinsic that hands on bits as another type, extended to 32 and shifted up first."""

    @intrinsic
    def reinterpret(typing_context: Any, value: Any) -> Any:
        def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            word = args[0]
            if shift:
                word = builder.shl(
                    builder.zext(word, ir.IntType(32)), ir.Constant(ir.IntType(32), shift)
                )
            return builder.bitcast(word, context.get_value_type(to_type))

        return to_type(from_type), build

    return reinterpret


_widen = cast("Callable[[np.uint16], np.float32]", _reinterpreted(types.uint16, types.float32, 16))
_bits_of = cast("Callable[[np.float32], np.uint32]", _reinterpreted(types.float32, types.uint32))
_float_of = cast("Callable[[np.int32], np.float32]", _reinterpreted(types.int32, types.float32))


@_inlined
def _narrow(value: np.float32) -> np.uint16:
    """To the nearest bfloat16, ties away from zero; `value` is finite."""
    return np.uint16((_bits_of(value) + np.uint32(0x8000)) >> np.uint32(16))


@_inlined
def _exp2(x: np.float32) -> np.float32:
    """2^x for x in [-126, 126], relative error below 3e-6: finer than the bfloat16 it ends in."""
    whole = np.floor(x)
    part = x - whole
    p = np.float32(1.35206e-2)
    p = p * part + np.float32(5.203743e-2)
    p = p * part + np.float32(2.4142749e-1)
    p = p * part + np.float32(6.9300662e-1)
    p = p * part + np.float32(1.0)
    return np.float32(p * _float_of(np.int32((np.int32(whole) + np.int32(127)) << np.int32(23))))


@_inlined
def _gelu(x: np.float32) -> np.float32:
    """x/2 (1 + erf(x / sqrt 2)); erf by least squares on [-4, 4], off by less than 1e-5 there and
    by 7e-5 of x beyond."""
    near = max(min(x, np.float32(4)), np.float32(-4))
    u = near * near * np.float32(0.125) - np.float32(1)
    p = np.float32(2.17944e-3)
    p = p * u + np.float32(-7.27323e-3)
    p = p * u + np.float32(1.328013e-2)
    p = p * u + np.float32(-2.407977e-2)
    p = p * u + np.float32(4.456285e-2)
    p = p * u + np.float32(-7.388823e-2)
    p = p * u + np.float32(1.1194306e-1)
    p = p * u + np.float32(-1.6863727e-1)
    p = p * u + np.float32(3.5189792e-1)
    return np.float32(0.5) * x * (np.float32(1) + near * p)


@_inlined
def _quantise(row_D: Floats, out_D: Bytes) -> np.float32:
    """The row as bytes around SIGNED_ZERO, and its scale. Magnitudes are compared as bits: LLVM
    makes vector code of a largest integer, not of a largest float."""
    largest_bits = _bits_of(np.float32(1e-20))
    for d in range(row_D.shape[0]):
        largest_bits = max(largest_bits, _bits_of(abs(row_D[d])))
    largest = _float_of(np.int32(largest_bits))
    inverse = np.float32(127) / largest
    for d in range(row_D.shape[0]):
        out_D[d] = np.uint8(np.int32(row_D[d] * inverse + np.float32(SIGNED_ZERO + 0.5)))
    return np.float32(largest / np.float32(127))


@compiled
def smoothed_rows(x_TD: Floats, inverse_D: Floats, out_TD: Bytes, scale_T: Floats) -> None:
    """`x_TD` times `inverse_D` as bytes."""
    row_D = np.empty(x_TD.shape[1], np.float32)
    for t in range(x_TD.shape[0]):
        for d in range(row_D.shape[0]):
            row_D[d] = x_TD[t, d] * inverse_D[d]
        scale_T[t] = _quantise(row_D, out_TD[t])


@compiled
def add_normed(
    x_TD: Floats,
    product_TD: Bits,
    scale_T: Floats,
    bias_gamma_beta_3D: Floats,
    epsilon: float,
) -> None:
    """x = norm(x + product * scale + bias) * gamma + beta, in place."""
    width = x_TD.shape[1]
    bias_D, gamma_D, beta_D = bias_gamma_beta_3D[0], bias_gamma_beta_3D[1], bias_gamma_beta_3D[2]
    for t in range(x_TD.shape[0]):
        row_D, scale = x_TD[t], scale_T[t]
        total, squares = np.float32(0), np.float32(0)
        for d in range(width):
            value = row_D[d] + _widen(product_TD[t, d]) * scale + bias_D[d]
            row_D[d] = value
            total += value
        mean = total / np.float32(width)
        for d in range(width):
            value = row_D[d] - mean
            squares += value * value
        rate = np.float32(1) / np.sqrt(squares / np.float32(width) + np.float32(epsilon))
        for d in range(width):
            row_D[d] = (row_D[d] - mean) * rate * gamma_D[d] + beta_D[d]


@compiled
def gelu_rows(
    product_TM: Bits, scale_T: Floats, bias_M: Floats, out_TM: Bytes, out_scale_T: Floats
) -> None:
    """gelu(product * scale + bias) as bytes around GELU_ZERO."""
    row_M = np.empty(product_TM.shape[1], np.float32)
    least = np.float32(0.17 / GELU_ZERO)
    for t in range(product_TM.shape[0]):
        scale, largest_bits = scale_T[t], np.uint32(0)
        for m in range(row_M.shape[0]):
            value = _gelu(_widen(product_TM[t, m]) * scale + bias_M[m])
            row_M[m] = value
            largest_bits = max(largest_bits, _bits_of(abs(value)))
        step = max(least, _float_of(np.int32(largest_bits)) / np.float32(255 - GELU_ZERO))
        inverse = np.float32(1) / step
        for m in range(row_M.shape[0]):
            out_TM[t, m] = np.uint8(np.int32(row_M[m] * inverse + np.float32(GELU_ZERO + 0.5)))
        out_scale_T[t] = step


class SplitHeads(Protocol):
    def __call__(
        self, product_L3D: Bits, scale_L: Floats, bias_factor_23D: Floats, heads_3HPE: Bits
    ) -> None:
        """(product * scale + bias) * factor as the queries, keys and values of every head."""
        ...


class JoinHeads(Protocol):
    def __call__(
        self, heads_HPE: Bits, sums_HP: Floats, out_LD: Bytes, out_scale_L: Floats
    ) -> None:
        """What the heads give, divided by the sums of their probabilities, as bytes."""
        ...


@lru_cache
def split_heads(head_dim: int) -> SplitHeads:
    """The kernel for one head size, which is a constant in it: loops over it unroll."""

    @compiled
    def run(product_L3D: Bits, scale_L: Floats, bias_factor_23D: Floats, heads_3HPE: Bits) -> None:
        bias_3D, factor_3D = bias_factor_23D[0], bias_factor_23D[1]
        row_3D = np.empty(len(bias_3D), np.uint16)
        for i in range(product_L3D.shape[0]):
            scale = scale_L[i]
            for d in range(len(row_3D)):
                value = _widen(product_L3D[i, d]) * scale + bias_3D[d]
                row_3D[d] = _narrow(value * factor_3D[d])
            first = 0
            for part in range(3):
                for h in range(heads_3HPE.shape[1]):
                    for e in range(head_dim):
                        heads_3HPE[part, h, i, e] = row_3D[first + e]
                    first += head_dim

    return run


@lru_cache
def join_heads(head_dim: int) -> JoinHeads:
    @compiled
    def run(heads_HPE: Bits, sums_HP: Floats, out_LD: Bytes, out_scale_L: Floats) -> None:
        row_D = np.empty(out_LD.shape[1], np.float32)
        for i in range(out_LD.shape[0]):
            for h in range(heads_HPE.shape[0]):
                share = np.float32(1) / sums_HP[h, i]
                for e in range(head_dim):
                    row_D[h * head_dim + e] = _widen(heads_HPE[h, i, e]) * share
            out_scale_L[i] = _quantise(row_D, out_LD[i])

    return run


@compiled
def powers(scores_HPP: Bits, num_keys: int, sums_HP: Floats) -> None:
    """2^score in place, 0 behind `num_keys`, and the sum of every row.

    No maximum is taken off first: see HIGHEST_SCORE.
    """
    padded = scores_HPP.shape[1]
    for h in range(scores_HPP.shape[0]):
        for i in range(padded):
            row_P, total = scores_HPP[h, i], np.float32(0)
            for j in range(num_keys):
                score = min(_widen(row_P[j]), np.float32(HIGHEST_SCORE))
                bits = _narrow(_exp2(max(score, np.float32(-126))))
                row_P[j] = bits
                total += _widen(bits)
            for j in range(num_keys, padded):
                row_P[j] = 0
            sums_HP[h, i] = total
