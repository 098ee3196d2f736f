"""Attention of a few bfloat16 query rows over many keys, with its log-sum-exp.

Knows addresses and flat arrays; does not know tiles or torch. One pass over keys and values in
blocks with a running maximum (FlashAttention's online softmax, arXiv 2205.14135), float32 inside.
Torch's own operator is made for many rows: 3 rows over 4,096 keys of 3 heads take it 780 us on one
core of an EPYC (Zen 4), this kernel 290 us.

Shapes: G key heads, R rows per key head, B keys of a block, D head dim, X spans. Suffix order is
dim order.
"""

from functools import lru_cache
from typing import NamedTuple, Protocol

import numpy as np
from numba import carray, prange  # type: ignore[attr-defined]
from numpy.typing import NDArray

from engines.local.kernels.bf16 import Bits, Floats, compiled, exp, pointer, widen

BLOCK = 64
"""Keys per step of the online softmax."""

MAX_ROWS = 16
"""More rows than this are faster as matrix products."""

LANES = 16
"""Head dims are multiples of this."""

LOWEST = np.float32(-3e38)

Spans = NDArray[np.int64]
"""[X, 2]: first key and number of keys of each span that the rows see."""

Constant = tuple[int, ...]


class Strip(NamedTuple):
    """Rows in memory: row s of head g begins `g * head_stride + s * D` elements behind `address`.
    The caller keeps that memory alive."""

    address: int
    head_stride: int


def constants(num_rows: int, head_dim: int) -> tuple[Constant, Constant]:
    """R and D / LANES as tuples so long: the length of a tuple is a constant to the compiler,
    which unrolls loops over it."""
    if head_dim % LANES:
        raise ValueError(f"a head dim must be a multiple of {LANES}, not {head_dim}")
    return (0,) * num_rows, (0,) * (head_dim // LANES)


class Attend(Protocol):
    def __call__(  # noqa: PLR0913
        self,
        q_GRD: Floats,
        keys: Strip,
        values: Strip,
        spans_X2: Spans,
        rows: Constant,
        lanes: Constant,
        out_GRD: Floats,
        lse_GR: Floats,
    ) -> None:
        """Queries are scaled already; every row sees every key of the spans. Without a key the
        result is 0 and LOWEST."""
        ...


@lru_cache
def attend(*, parallel: bool) -> Attend:
    @compiled(parallel=parallel)
    def run(  # noqa: PLR0913
        q_GRD: Floats,
        keys: Strip,
        values: Strip,
        spans_X2: Spans,
        rows: Constant,
        lanes: Constant,
        out_GRD: Floats,
        lse_GR: Floats,
    ) -> None:
        for g in prange(q_GRD.shape[0]):
            _attend_head(g, q_GRD[g], keys, values, spans_X2, rows, lanes, out_GRD[g], lse_GR[g])

    return run


@compiled()
def _attend_head(  # noqa: PLR0913
    head: int,
    q_RD: Floats,
    keys: Strip,
    values: Strip,
    spans_X2: Spans,
    rows: Constant,
    lanes: Constant,
    out_RD: Floats,
    lse_R: Floats,
) -> None:
    num_rows, head_dim = len(rows), LANES * len(lanes)
    score_RB = np.empty((num_rows, BLOCK), np.float32)
    top_R = np.full(num_rows, LOWEST, np.float32)
    sum_R = np.zeros(num_rows, np.float32)
    out_RD[:] = np.float32(0)
    for x in range(spans_X2.shape[0]):
        last = spans_X2[x, 0] + spans_X2[x, 1]
        for first in range(spans_X2[x, 0], last, BLOCK):
            size = min(BLOCK, last - first)
            key_BD = _block(keys, head, first, size, head_dim)
            value_BD = _block(values, head, first, size, head_dim)
            _score(q_RD, key_BD, rows, lanes, score_RB)
            for r in range(num_rows):
                top = _follow(score_RB[r, :size], top_R[r], out_RD[r])
                sum_R[r] = sum_R[r] * exp(top_R[r] - top) + _shares(score_RB[r, :size], top)
                top_R[r] = top
                _add(score_RB[r, :size], value_BD, lanes, out_RD[r])
    for r in range(num_rows):
        lse_R[r] = LOWEST
        if sum_R[r] > np.float32(0):
            lse_R[r] = top_R[r] + np.log(sum_R[r])
            for d in range(head_dim):
                out_RD[r, d] /= sum_R[r]


@compiled()
def _block(strip: Strip, head: int, first: int, size: int, head_dim: int) -> Bits:
    # Parallel loops count in unsigned numbers, and those times signed ones are floats.
    start = int(np.int64(head)) * strip.head_stride + first * head_dim
    block_BD: Bits = carray(pointer(strip.address + 2 * start), (size, head_dim))
    return block_BD


@compiled()
def _score(q_RD: Floats, key_BD: Bits, rows: Constant, lanes: Constant, score_RB: Floats) -> None:
    for b in range(key_BD.shape[0]):
        for r in range(len(rows)):
            total = np.float32(0)
            for d in range(LANES * len(lanes)):
                total += q_RD[r, d] * widen(key_BD[b, d])
            score_RB[r, b] = total


@compiled()
def _add(share_B: Floats, value_BD: Bits, lanes: Constant, total_D: Floats) -> None:
    whole = value_BD.shape[0] // 4 * 4
    # Four keys at a time: the total is loaded and stored a quarter as often.
    for b in range(0, whole, 4):
        s0, s1, s2, s3 = share_B[b], share_B[b + 1], share_B[b + 2], share_B[b + 3]
        for d in range(LANES * len(lanes)):
            total_D[d] += (
                s0 * widen(value_BD[b, d])
                + s1 * widen(value_BD[b + 1, d])
                + s2 * widen(value_BD[b + 2, d])
                + s3 * widen(value_BD[b + 3, d])
            )
    for b in range(whole, value_BD.shape[0]):
        for d in range(LANES * len(lanes)):
            total_D[d] += share_B[b] * widen(value_BD[b, d])


@compiled()
def _follow(score_B: Floats, old_top: np.float32, total_D: Floats) -> np.float32:
    """The maximum so far; what was added up under a lower one is shrunk to it."""
    top = old_top
    for b in range(score_B.shape[0]):
        top = max(top, score_B[b])
    if top > old_top:
        shrink = exp(old_top - top)
        for d in range(total_D.shape[0]):
            total_D[d] *= shrink
    return top


@compiled()
def _shares(score_B: Floats, top: np.float32) -> np.float32:
    """Turn scores into e^(score - top) in place; returns their sum."""
    total = np.float32(0)
    for b in range(score_B.shape[0]):
        share = exp(score_B[b] - top)
        score_B[b] = share
        total += share
    return total
