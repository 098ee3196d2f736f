"""The merge of ranks' results against float64."""

import numpy as np
import pytest

from engines.local.kernels.merge import merge


@pytest.mark.parametrize("nothing", [-np.inf, -3e38])
def test_a_rank_without_keys_changes_nothing_and_the_rest_is_a_softmax(nothing: float) -> None:
    rng = np.random.default_rng(0)
    out_NRD = rng.standard_normal((3, 4, 5)).astype(np.float32)
    lse_NR = (10 * rng.standard_normal((3, 4))).astype(np.float32)
    out_NRD[1], lse_NR[1] = 0.0, nothing
    gathered = np.concatenate([out_NRD.reshape(3, -1), lse_NR, np.zeros((3, 1))], 1)
    out_RD, lse_R = np.empty((4, 5), np.float32), np.empty(4, np.float32)
    assert not merge(gathered.astype(np.float32), out_RD, lse_R)
    share = np.exp(lse_NR[[0, 2]].astype(float))
    wanted = (share[..., None] * out_NRD[[0, 2]]).sum(0) / share.sum(0)[:, None]
    assert np.abs(out_RD - wanted).max() < 1e-6
    assert np.abs(lse_R - np.log(share.sum(0))).max() < 1e-5


@pytest.mark.parametrize("rank", [0, 1])
def test_the_wish_of_one_rank_to_stop_is_heard(rank: int) -> None:
    gathered = np.zeros((2, 1 * 2 + 1 + 1), np.float32)
    gathered[rank, -1] = 1.0
    assert merge(gathered, np.empty((1, 2), np.float32), np.empty(1, np.float32))
