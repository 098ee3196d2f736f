"""bfloat16 inside compiled kernels: NumPy has no such type, so values travel as their 16 bits.

Knows bits and how functions are compiled; does not know models. A bfloat16 is the upper half of a
float32, so widening is a shift, and eight or sixteen of them widen in one instruction.
"""

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core.registry import cpu_target
from numba.extending import intrinsic
from numpy.typing import NDArray

P = ParamSpec("P")
R = TypeVar("R")

Bits = NDArray[np.uint16]
"""bfloat16 values as their bits."""

Floats = NDArray[np.float32]


# numba fills its tables at the first compilation: 120 MB and a second, which ranks share and save
# when this module is imported before they are forked.
cpu_target.typing_context.refresh()
cpu_target.target_context.refresh()

# 2^f on [0, 1): least squares at Chebyshev nodes, relative error 3e-9 before rounding.
C0, C1, C2, C3 = 1.0, 6.9314692869e-01, 2.4023050204e-01, 5.5480426326e-02
C4, C5, C6 = 9.6845804520e-03, 1.2387821481e-03, 2.1877504763e-04


def compiled(
    *, parallel: bool = False, fastmath: bool = True
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Compile at the first call and keep the code on disk for the next process.

    `fastmath` lets sums be reordered, which is what makes them vector sums; what a kernel does
    with nan or infinity is undefined. Kernels must not close over other kernels: numba would not
    know them again on disk and compile them in every process.
    """
    compiler: Any = njit(parallel=parallel, fastmath=fastmath, nogil=True, cache=True)

    def compile_later(function: Callable[P, R]) -> Callable[P, R]:
        if parallel:  # numba files code by name and bytecode, not by what it was compiled for
            function.__qualname__ += "_parallel"
        return cast("Callable[P, R]", compiler(function))

    return compile_later


def inlined(function: Callable[P, R]) -> Callable[P, R]:
    compiler: Any = njit(inline="always", fastmath=True)
    return cast("Callable[P, R]", compiler(function))


def _reinterpreted(from_type: Any, to_type: Any, shift: int = 0) -> Any:
    """An intrinsic that hands on bits as another type, extended to 32 and shifted up first."""

    @intrinsic
    def reinterpret(typing_context: Any, value: Any) -> Any:
        def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            word = args[0]
            if shift:
                wide = builder.zext(word, ir.IntType(32))
                word = builder.shl(wide, ir.Constant(ir.IntType(32), shift))
            return builder.bitcast(word, context.get_value_type(to_type))

        return to_type(from_type), build

    return reinterpret


widen = cast("Callable[[np.uint16], np.float32]", _reinterpreted(types.uint16, types.float32, 16))
"""The bits of a bfloat16 -> float32."""


@intrinsic
def _pointer(typing_context: Any, address: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], context.get_value_type(signature.return_type))

    bits_at: Any = types.CPointer(types.uint16)  # type: ignore[no-untyped-call]
    return bits_at(types.int64), build


pointer = cast("Callable[[int], Any]", _pointer)
"""An address -> what `numba.carray` makes an array of bfloat16 from."""

_bits_of = cast("Callable[[np.float32], np.uint32]", _reinterpreted(types.float32, types.uint32))
_float_of = cast("Callable[[np.int32], np.float32]", _reinterpreted(types.int32, types.float32))


@inlined
def narrow(value: np.float32) -> np.uint16:
    """float32 -> the bits of the nearest bfloat16, ties to even; nan stays nan."""
    bits = _bits_of(value)
    if bits & np.uint32(0x7FFFFFFF) > np.uint32(0x7F800000):
        return np.uint16(0x7FC0)
    odd = (bits >> np.uint32(16)) & np.uint32(1)
    return np.uint16((bits + np.uint32(0x7FFF) + odd) >> np.uint32(16))


@inlined
def exp(x: np.float32) -> np.float32:
    """e^x for x in [-87, 87], relative error below 3e-7; x beyond is taken as the nearer end.

    libm's is called once per element; this is vector code: 2^f by a polynomial, 2^n by building
    the exponent.
    """
    t = max(min(x * np.float32(1.44269504), np.float32(126)), np.float32(-126))
    n = np.floor(t)
    f = t - n
    p = np.float32(C6)
    p = p * f + np.float32(C5)
    p = p * f + np.float32(C4)
    p = p * f + np.float32(C3)
    p = p * f + np.float32(C2)
    p = p * f + np.float32(C1)
    p = p * f + np.float32(C0)
    exponent = (np.int32(n) + np.int32(127)) << np.int32(23)
    return np.float32(p * _float_of(np.int32(exponent)))
