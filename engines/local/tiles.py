"""One tile of attention with its log-sum-exp, and how tiles add up.

Knows the attention operators of torch and their traps; does not know ranks or models.
Natural logarithm everywhere; results are float32 whatever the inputs are.

Shapes: H query heads, G key heads, T query rows, S keys, D head dim. Suffix order is dim order.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from engines.local.few_rows_attention import attend_few_rows, suits_few_rows
from engines.local.kernels.merge import merge
from engines.local.placement import Rule, Tile

FLASH_MAX_HEAD_DIM = 256

Kernel = Callable[[Tensor, Tensor, Tensor, bool, Tensor | None, float], tuple[Tensor, Tensor]]
"""(q_BHTD, k_BGSD, v_BGSD, causal, bias_TS, scale) -> (out_BHTD, lse_BHT). No input is empty."""


def attend_tile(
    q_HTD: Tensor, k_GSD: Tensor, v_GSD: Tensor, tile: Tile, *, scale: float, window: int | None
) -> tuple[Tensor, Tensor]:
    """Attend the tile's rows to its keys: (out_HTD, lse_HT), both float32.

    `q_HTD`, `k_GSD` and `v_GSD` are the whole row and key blocks that the tile indexes. A row
    that sees no key comes back with out 0 and lse -inf.
    """
    rows_HTD = q_HTD[:, tile.row : tile.row + tile.num_rows]
    keys = slice(tile.key, tile.key + tile.num_keys)
    kernel = kernel_for(q_HTD.device, q_HTD.dtype)
    if tile.rule is Rule.FULL:
        return _attend_full(kernel, rows_HTD, k_GSD[:, keys], v_GSD[:, keys], scale)
    causal = tile.rule is Rule.DIAGONAL
    seen_TS = None if causal else _seen(tile, window, q_HTD.device)
    bias_TS = None
    if seen_TS is not None:
        bias_TS = torch.zeros(seen_TS.shape, dtype=q_HTD.dtype, device=q_HTD.device)
        bias_TS.masked_fill_(~seen_TS, float("-inf"))
    out_BHTD, lse_BHT = kernel(
        rows_HTD[None], k_GSD[None, :, keys], v_GSD[None, :, keys], causal, bias_TS, scale
    )
    lse_HT = lse_BHT[0].float()
    if seen_TS is not None:
        lse_HT = lse_HT.masked_fill(~seen_TS.any(-1), float("-inf"))
    return out_BHTD[0].float(), lse_HT


def _attend_full(
    kernel: Kernel, q_HTD: Tensor, k_GSD: Tensor, v_GSD: Tensor, scale: float
) -> tuple[Tensor, Tensor]:
    """Without a mask all query heads of one key head are just more rows.

    For a single row over 32K keys this is 2 to 5 times faster than letting the operator repeat.
    """
    num_heads, num_rows, head_dim = q_HTD.shape
    folded_BGTD = q_HTD.reshape(1, k_GSD.shape[0], -1, head_dim)
    out_BGTD, lse_BGT = kernel(folded_BGTD, k_GSD[None], v_GSD[None], False, None, scale)
    return (
        out_BGTD.reshape(num_heads, num_rows, head_dim).float(),
        lse_BGT.reshape(num_heads, num_rows).float(),
    )


def _seen(tile: Tile, window: int | None, device: torch.device) -> Tensor:
    query_T1 = torch.arange(tile.num_rows, device=device)[:, None] + tile.first_query
    key_1S = torch.arange(tile.num_keys, device=device)[None] + tile.first_key
    seen_TS = key_1S <= query_T1
    return seen_TS if window is None else seen_TS & (key_1S > query_T1 - window)


class Accumulator:
    """The running attention result of T rows: `out_HTD` normalised over the keys seen so far and
    `lse_HT` the log-sum-exp of their scores. Before the first tile: 0 and -inf."""

    def __init__(self, out_HTD: Tensor, lse_HT: Tensor, flat_X: Tensor | None = None) -> None:
        self.out_HTD = out_HTD
        self.lse_HT = lse_HT
        self.flat_X = flat_X

    @classmethod
    def like(cls, q_HTD: Tensor) -> "Accumulator":
        """Both results lie in `flat_X`, which ends in one spare element: ready to be sent."""
        size, num_rows = q_HTD.numel(), q_HTD[..., 0].numel()
        flat_X = torch.zeros(size + num_rows + 1, dtype=torch.float32, device=q_HTD.device)
        lse_HT = flat_X[size:-1].view(q_HTD.shape[:2])
        return cls(flat_X[:size].view(q_HTD.shape), lse_HT.fill_(float("-inf")), flat_X)

    def rows(self, start: int, stop: int) -> "Accumulator":
        """The same result, seen through a few of its rows."""
        return Accumulator(self.out_HTD[:, start:stop], self.lse_HT[:, start:stop])

    def begin(self, out_HTD: Tensor, lse_HT: Tensor) -> None:
        """`add` for rows that have seen nothing yet."""
        self.out_HTD.copy_(out_HTD)
        self.lse_HT.copy_(lse_HT)

    def add(self, out_HTD: Tensor, lse_HT: Tensor) -> None:
        """Fold one more block of keys in; a row with lse -inf changes nothing.

        The order of blocks does not matter beyond rounding.
        """
        top_HT = torch.maximum(self.lse_HT, lse_HT)
        # A row that has seen no key at all has -inf here, and -inf - -inf is nan.
        top_HT.masked_fill_(top_HT == float("-inf"), 0.0)
        old_HT, add_HT = torch.exp(self.lse_HT - top_HT), torch.exp(lse_HT - top_HT)
        # Dividing by the sum itself keeps out normalised where lse is too large to be precise.
        sum_HT = old_HT + add_HT
        share_HT1 = (add_HT / sum_HT.clamp_min(torch.finfo(torch.float32).tiny))[..., None]
        self.out_HTD.lerp_(out_HTD, share_HT1)
        self.lse_HT.copy_(top_HT + sum_HT.log())


def merge_gathered(gathered_NX: Tensor, shape_HTD: Sequence[int]) -> tuple[Tensor, Tensor, bool]:
    """Merge N ranks' `Accumulator.flat_X` over disjoint keys: (out_HTD, lse_HT, wants_stop).

    Every row must have seen a key on one of them. `wants_stop` is true if one's last element is
    not 0.
    """
    num_heads, num_rows, head_dim = shape_HTD
    size = num_heads * num_rows * head_dim
    if gathered_NX.device.type == "cpu":
        out_RD = gathered_NX.new_empty(num_heads * num_rows, head_dim)
        lse_R = gathered_NX.new_empty(num_heads * num_rows)
        wants_stop = merge(gathered_NX.numpy(), out_RD.numpy(), lse_R.numpy())
        return out_RD.view(*shape_HTD), lse_R.view(num_heads, num_rows), wants_stop
    out_NHTD = gathered_NX[:, :size].view(-1, *shape_HTD)
    lse_NHT = gathered_NX[:, size:-1].view(-1, num_heads, num_rows)
    share_NHT1 = torch.softmax(lse_NHT, 0)[..., None]
    wants_stop = bool(gathered_NX[:, -1].any())
    return (out_NHTD * share_NHT1).sum(0), torch.logsumexp(lse_NHT, 0), wants_stop


def with_sink(out_HTD: Tensor, lse_HT: Tensor, sink_H: Tensor) -> Tensor:
    """Let a learned score per head take its share of the softmax; once, after all keys."""
    return out_HTD * torch.sigmoid(lse_HT - sink_H.float()[:, None])[..., None]


def kernel_for(device: torch.device, dtype: torch.dtype) -> Kernel:
    if device.type == "cpu":
        return _cpu_kernel
    return _efficient_kernel if dtype == torch.float32 else _flash_kernel


def _cpu_kernel(
    q_BHTD: Tensor,
    k_BGSD: Tensor,
    v_BGSD: Tensor,
    causal: bool,
    bias_TS: Tensor | None,
    scale: float,
) -> tuple[Tensor, Tensor]:
    """Traps: an empty q or k kills the process (SIGFPE), `bias_TS` must have q's dtype, a fully
    masked row reports lse 0, and lse is strided."""
    assert q_BHTD.numel() * k_BGSD.numel() > 0, "an empty tile would kill the process"
    if not causal and bias_TS is None and suits_few_rows(q_BHTD, k_BGSD, v_BGSD):
        return attend_few_rows(q_BHTD, k_BGSD, v_BGSD, scale)
    out: tuple[Tensor, Tensor] = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        q_BHTD, k_BGSD, v_BGSD, 0.0, causal, attn_mask=bias_TS, scale=scale
    )
    return out


def _flash_kernel(
    q_BHTD: Tensor,
    k_BGSD: Tensor,
    v_BGSD: Tensor,
    causal: bool,
    bias_TS: Tensor | None,
    scale: float,
) -> tuple[Tensor, Tensor]:
    """GPU only, half precision; the CPU suite knows its signature only. Grouped heads are its own
    (FlashAttention's `mha_fwd`); it takes no bias and no heads of more than 256."""
    if bias_TS is not None or q_BHTD.shape[3] > FLASH_MAX_HEAD_DIM:
        return _efficient_kernel(q_BHTD, k_BGSD, v_BGSD, causal, bias_TS, scale)
    out = torch.ops.aten._scaled_dot_product_flash_attention(
        q_BHTD, k_BGSD, v_BGSD, 0.0, causal, False, scale=scale
    )
    return out[0], out[1]


def _efficient_kernel(
    q_BHTD: Tensor,
    k_BGSD: Tensor,
    v_BGSD: Tensor,
    causal: bool,
    bias_TS: Tensor | None,
    scale: float,
) -> tuple[Tensor, Tensor]:
    """GPU only; the CPU suite knows its signature only. Its lse is padded to a multiple of 32
    rows, its bias must lie in rows of a multiple of 8, and it takes no grouped heads."""
    num_heads, num_rows = q_BHTD.shape[1:3]
    repeats = num_heads // k_BGSD.shape[1]
    bias = None
    if bias_TS is not None:
        num_keys = bias_TS.shape[1]
        padded_TS = bias_TS.new_zeros(num_rows, -(-num_keys // 8) * 8)
        padded_TS[:, :num_keys] = bias_TS
        bias = padded_TS[:, :num_keys].expand(1, num_heads, num_rows, num_keys)
    out = torch.ops.aten._scaled_dot_product_efficient_attention(
        q_BHTD,
        k_BGSD.repeat_interleave(repeats, 1),
        v_BGSD.repeat_interleave(repeats, 1),
        bias,
        True,
        0.0,
        causal,
        scale=scale,
    )
    return out[0], out[1][..., :num_rows]
