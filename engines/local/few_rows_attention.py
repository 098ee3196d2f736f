"""Calls the compiled attention kernel with tensors: few query rows over many keys, as in decode.

Knows strides; does not know tiles or passes.

Shapes: G heads (of queries and keys alike, GQA folded into rows), R rows, S keys, D head dim.
"""

import numpy as np
import torch
from torch import Tensor

from engines.local.kernels.attend import LANES, MAX_ROWS, Strip, attend, constants


def suits_few_rows(q_1GRD: Tensor, k_1GSD: Tensor, v_1GSD: Tensor) -> bool:
    """bfloat16 on the CPU, at most MAX_ROWS rows per head, and keys that lie row after row."""
    return (
        q_1GRD.dtype == torch.bfloat16
        and q_1GRD.shape[:2] == k_1GSD.shape[:2] == v_1GSD.shape[:2]
        and q_1GRD.shape[2] <= MAX_ROWS
        and q_1GRD.shape[3] % LANES == 0
        and all(x.stride()[2:] == (x.shape[3], 1) for x in (k_1GSD, v_1GSD))
    )


def attend_few_rows(
    q_1GRD: Tensor, k_1GSD: Tensor, v_1GSD: Tensor, scale: float
) -> tuple[Tensor, Tensor]:
    """(out_1GRD, lse_1GR), float32. Every row sees every key."""
    _, num_heads, num_rows, head_dim = q_1GRD.shape
    q_GRD = q_1GRD[0].float() * scale
    out_GRD = torch.empty_like(q_GRD)
    lse_GR = q_GRD.new_empty(num_heads, num_rows)
    run = attend(parallel=torch.get_num_threads() > 1)
    run(
        q_GRD.numpy(),
        strip(k_1GSD[0]),
        strip(v_1GSD[0]),
        np.array([[0, k_1GSD.shape[2]]]),
        *constants(num_rows, head_dim),
        out_GRD.numpy(),
        lse_GR.numpy(),
    )
    return out_GRD[None], lse_GR[None]


def strip(x_GSD: Tensor) -> Strip:
    """Keys or values where they lie; good for as long as the tensor is."""
    return Strip(x_GSD.data_ptr(), x_GSD.stride(0))
