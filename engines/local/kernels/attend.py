"""Attention of a few bfloat16 query rows over many keys, with its log-sum-exp.

Knows flat arrays; does not know tiles or torch. One pass over keys and values in blocks with a
running maximum (FlashAttention's online softmax, arXiv 2205.14135), float32 inside. Torch's own
operator is made for many rows: 3 rows over 4,096 keys of 3 heads take it 780 us on one core of an
EPYC (Zen 4), this kernel 290 us.

Shapes: G key heads, R rows per key head, B keys of a block, D head dim. Suffix order is dim order.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple, Protocol

import numpy as np
from numba import prange

from engines.local.kernels.bf16 import Bits, Floats, compiled, exp, widen

BLOCK = 64
"""Keys per step of the online softmax."""

MAX_ROWS = 16
"""More rows than this are faster as matrix products."""

LOWEST = np.float32(-3e38)


class Strip(NamedTuple):
    """Rows in a flat array: row s of head g begins at `offset + g * head_stride + s * D`."""

    data: Bits
    offset: int
    head_stride: int


class Attend(Protocol):
    def __call__(
        self,
        q_GRD: Floats,
        keys: Strip,
        values: Strip,
        num_keys: int,
        out_GRD: Floats,
        lse_GR: Floats,
    ) -> None:
        """Queries are scaled already; every row sees every key; `num_keys` >= 1."""
        ...


@lru_cache
def attend(num_rows: int, head_dim: int, *, parallel: bool) -> Attend:
    """The kernel for R and D, which are constants in it: loops over them unroll.

    The first call for a pair compiles for a second or two, unless it is on disk.
    """
    score, add = _block_kernels(num_rows, head_dim)

    @compiled(parallel=parallel)
    def run(
        q_GRD: Floats, keys: Strip, values: Strip, num_keys: int, out_GRD: Floats, lse_GR: Floats
    ) -> None:
        for g in prange(q_GRD.shape[0]):
            score_RB = np.empty((num_rows, BLOCK), np.float32)
            total_RD = np.zeros((num_rows, head_dim), np.float32)
            top_R = np.full(num_rows, LOWEST, np.float32)
            sum_R = np.zeros(num_rows, np.float32)
            key_0 = keys.offset + g * keys.head_stride
            value_0 = values.offset + g * values.head_stride
            for first in range(0, num_keys, BLOCK):
                size = min(BLOCK, num_keys - first)
                start, stop = first * head_dim, (first + size) * head_dim
                # Views, because an index that might be negative is no vector load.
                key_BD = keys.data[key_0 + start : key_0 + stop].reshape(size, head_dim)
                value_BD = values.data[value_0 + start : value_0 + stop].reshape(size, head_dim)
                score(q_GRD[g], key_BD, score_RB)
                for r in range(num_rows):
                    top = _follow(score_RB[r, :size], top_R[r], total_RD[r])
                    sum_R[r] = sum_R[r] * exp(top_R[r] - top) + _shares(score_RB[r, :size], top)
                    top_R[r] = top
                    add(score_RB[r, :size], value_BD, total_RD[r])
            for r in range(num_rows):
                lse_GR[g, r] = top_R[r] + np.log(sum_R[r])
                for d in range(head_dim):
                    out_GRD[g, r, d] = total_RD[r, d] / sum_R[r]

    return run


@lru_cache
def _block_kernels(
    num_rows: int, head_dim: int
) -> tuple[Callable[[Floats, Bits, Floats], None], Callable[[Floats, Bits, Floats], None]]:
    """(q_RD, key_BD, score_RB) and (share_B, value_BD, total_D), both filling their last."""

    @compiled()
    def score(q_RD: Floats, key_BD: Bits, score_RB: Floats) -> None:
        for b in range(key_BD.shape[0]):
            for r in range(num_rows):
                total = np.float32(0)
                for d in range(head_dim):
                    total += q_RD[r, d] * widen(key_BD[b, d])
                score_RB[r, b] = total

    @compiled()
    def add(share_B: Floats, value_BD: Bits, total_D: Floats) -> None:
        whole = value_BD.shape[0] // 4 * 4
        # Four keys at a time: the total is loaded and stored a quarter as often.
        for b in range(0, whole, 4):
            s0, s1, s2, s3 = share_B[b], share_B[b + 1], share_B[b + 2], share_B[b + 3]
            for d in range(head_dim):
                total_D[d] += (
                    s0 * widen(value_BD[b, d])
                    + s1 * widen(value_BD[b + 1, d])
                    + s2 * widen(value_BD[b + 2, d])
                    + s3 * widen(value_BD[b + 3, d])
                )
        for b in range(whole, value_BD.shape[0]):
            for d in range(head_dim):
                total_D[d] += share_B[b] * widen(value_BD[b, d])

    return score, add


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
