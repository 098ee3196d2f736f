"""Merges the attention results that N ranks have over their own keys, in one call.

Knows flat arrays; does not know tensors or ranks. As torch operators this is a dozen dispatches,
which for one decoded token take longer than the arithmetic.

Shapes: N ranks, X = rows * head_dim + rows + 1 floats, as `Accumulator` packs them.
"""

import numpy as np

from engines.local.kernels.bf16 import Floats, compiled


@compiled(fastmath=False)
def merge(gathered_NX: Floats, out_RD: Floats, lse_R: Floats) -> bool:
    """Fill `out_RD` and `lse_R`; true if any rank's last element is not 0: it wants to stop.

    A rank whose lse is -inf, or the lowest number, has no keys for that row. Each row must have
    keys somewhere. The order of addition is that of ranks, so all ranks get the same bits.
    """
    num_ranks = gathered_NX.shape[0]
    num_rows, head_dim = out_RD.shape
    at_lse = num_rows * head_dim
    for r in range(num_rows):
        top = gathered_NX[0, at_lse + r]
        for n in range(1, num_ranks):
            top = max(top, gathered_NX[n, at_lse + r])
        total = np.float32(0)
        for d in range(head_dim):
            out_RD[r, d] = np.float32(0)
        for n in range(num_ranks):
            share = np.exp(max(gathered_NX[n, at_lse + r] - top, np.float32(-87)))
            total += share
            part_D = gathered_NX[n, r * head_dim : (r + 1) * head_dim]
            for d in range(head_dim):
                out_RD[r, d] += share * part_D[d]
        for d in range(head_dim):
            out_RD[r, d] /= total
        lse_R[r] = top + np.log(total)
    stop = False
    for n in range(num_ranks):
        stop |= gathered_NX[n, at_lse + num_rows] != np.float32(0)
    return stop
