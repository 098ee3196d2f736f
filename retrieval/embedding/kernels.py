"""What stands between the integer products of an encoder, compiled: scales, norms, gelu, softmax.

Knows arrays; does not know models or torch. bfloat16 travels as its 16 bits, which NumPy can hold.
A row of activations is quantised by its own largest value, so no text can overflow a scale that
was measured on another: value = (byte - zero) * row scale.

Shapes: T tokens, D hidden width, M inner width, H heads, P padded tokens, N windows times heads.
Suffix order is dim order. Head arrays hold window after window, each as [H, padded, D / H].
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple, ParamSpec, Protocol, TypeVar, cast

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
Places = NDArray[np.int64]

SIGNED_ZERO = 128
"""Zero of rows with values on both sides."""

GELU_ZERO = 16
"""Zero of rows after gelu, which is never below -0.17: most bytes are for what is above."""

PAD = 16
"""Windows of a head array are padded to a multiple of this: one vector of float32."""

LOG2_E = 1.4426950408889634

_HIGHEST_SCORE = 100.0
"""Scores are powers of two; sums of 2^100 stay finite. No trained model comes near."""


class Windows(NamedTuple):
    """Where each window is: tokens [start, start + length) of T, [place, place + padded) of P."""

    starts: Places
    lengths: Places
    places: Places
    padded: Places


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
    """The row as bytes around SIGNED_ZERO, and its scale."""
    largest = np.float32(1e-20)
    for d in range(row_D.shape[0]):
        largest = max(largest, abs(row_D[d]))
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
        scale, largest = scale_T[t], np.float32(0)
        for m in range(row_M.shape[0]):
            value = _gelu(_widen(product_TM[t, m]) * scale + bias_M[m])
            row_M[m] = value
            largest = max(largest, value)
        step = max(least, largest / np.float32(255 - GELU_ZERO))
        inverse = np.float32(1) / step
        for m in range(row_M.shape[0]):
            out_TM[t, m] = np.uint8(np.int32(row_M[m] * inverse + np.float32(GELU_ZERO + 0.5)))
        out_scale_T[t] = step


class SplitHeads(Protocol):
    def __call__(
        self,
        product_T3D: Bits,
        scale_T: Floats,
        bias_3D: Floats,
        windows: Windows,
        heads_3PD: Bits,
    ) -> None:
        """product * scale + bias as queries, keys and values by window and head; queries are
        multiplied so that scores are powers of two."""
        ...


class JoinHeads(Protocol):
    def __call__(
        self, heads_PD: Bits, sums_PH: Floats, windows: Windows, out_TD: Bytes, scale_T: Floats
    ) -> None:
        """Values weighted by probabilities, divided by their sums, as bytes."""
        ...


@lru_cache
def split_heads(head_dim: int) -> SplitHeads:
    """The kernel for one head size, which is a constant in it: loops over it unroll."""
    sharpness = np.float32(LOG2_E / head_dim**0.5)

    @compiled
    def run(
        product_T3D: Bits, scale_T: Floats, bias_3D: Floats, windows: Windows, heads_3PD: Bits
    ) -> None:
        width = product_T3D.shape[1] // 3
        row_3D = np.empty(3 * width, np.uint16)
        for w in range(len(windows.starts)):
            length, padded = windows.lengths[w], windows.padded[w]
            for i in range(length):
                t = windows.starts[w] + i
                scale = scale_T[t]
                for d in range(width):
                    value = _widen(product_T3D[t, d]) * scale + bias_3D[d]
                    row_3D[d] = _narrow(value * sharpness)
                for d in range(width, 3 * width):
                    row_3D[d] = _narrow(_widen(product_T3D[t, d]) * scale + bias_3D[d])
                for part in range(3):
                    for h in range(width // head_dim):
                        source = part * width + h * head_dim
                        target = windows.places[w] * width + (h * padded + i) * head_dim
                        for e in range(head_dim):
                            heads_3PD[part, target + e] = row_3D[source + e]

    return run


@lru_cache
def join_heads(head_dim: int) -> JoinHeads:
    @compiled
    def run(
        heads_PD: Bits, sums_PH: Floats, windows: Windows, out_TD: Bytes, scale_T: Floats
    ) -> None:
        num_heads = out_TD.shape[1] // head_dim
        row_D = np.empty(out_TD.shape[1], np.float32)
        for w in range(len(windows.starts)):
            length, padded = windows.lengths[w], windows.padded[w]
            for i in range(length):
                for h in range(num_heads):
                    row = windows.places[w] * num_heads + h * padded + i
                    share = np.float32(1) / sums_PH[row]
                    for e in range(head_dim):
                        row_D[h * head_dim + e] = _widen(heads_PD[row * head_dim + e]) * share
                t = windows.starts[w] + i
                scale_T[t] = _quantise(row_D, out_TD[t])

    return run


@compiled
def powers(scores_NPP: Bits, num_keys_N: Places, sums_NP: Floats) -> None:
    """2^score in place, 0 behind `num_keys`, and the sum of every row.

    No maximum is taken off first: see _HIGHEST_SCORE.
    """
    padded = scores_NPP.shape[1]
    for n in range(scores_NPP.shape[0]):
        num_keys = num_keys_N[n]
        for i in range(padded):
            row_P = scores_NPP[n, i]
            total = np.float32(0)
            for first in range(0, padded, PAD):
                for e in range(PAD):
                    score = min(_widen(row_P[first + e]), np.float32(_HIGHEST_SCORE))
                    power = _exp2(max(score, np.float32(-126)))
                    bits = _narrow(power) if first + e < num_keys else np.uint16(0)
                    row_P[first + e] = bits
                    total += _widen(bits)
            sums_NP[n, i] = total
