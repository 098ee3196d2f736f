"""One decoded token of each of a few sequences, through the compiled layers of a model.

Knows what each rank computes and what ranks exchange; does not know modules or sampling. Two
exchanges per layer: every rank attends over the keys that it holds and computes its share of the
MLP, and of the vocabulary at the end. Where the ring spans hosts the exchanges of shares would
cost more than they save, and every rank computes all.

Shapes: T rows, one per sequence, K hidden size, H query heads, G key heads, D head dim, N ranks,
V vocabulary, X floats of an exchange. Suffix order is dim order.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from engines.local.compiled_layers import CompiledLayer, CompiledLayers
from engines.local.few_rows import bits
from engines.local.few_rows_attention import strip
from engines.local.kernels.attend import LOWEST, attend, constants
from engines.local.kernels.bf16 import Floats
from engines.local.kernels.layer import enter, finish, leave
from engines.local.passes import Stop
from engines.local.replicated import SequenceRows
from engines.local.ring import RingGroup, StepAborted


class Share(NamedTuple):
    """Which of `size` equal parts of a dimension this rank computes."""

    rank: int
    size: int

    def of(self, length: int) -> tuple[int, int]:
        """[first, last); the last ranks' may be shorter."""
        step = -(-length // self.size)
        return min(self.rank * step, length), min((self.rank + 1) * step, length)


class CompiledPass:
    """Every part must be a single row: of a sequence each, or consecutive rows of one, in order.
    A row's result depends on no other row of the pass, to the last bit. Used for one step."""

    def __init__(
        self,
        model: CompiledLayers,
        parts: Sequence[SequenceRows],
        group: RingGroup,
        stop: Stop,
    ) -> None:
        self._model = model
        self._parts = parts
        self._group = group
        self._stop = stop
        self._share = Share(group.rank, group.size) if group.is_near() else Share(0, 1)
        self._parallel = torch.get_num_threads() > 1
        num_rows, dim, num_heads = len(parts), model.head_dim, model.num_heads
        self._q_THD = np.empty((num_rows, num_heads, dim), np.float32)
        self._kv_2TGD = torch.empty(2, num_rows, model.num_key_heads, dim, dtype=torch.bfloat16)
        self._result_X = np.empty(num_rows * num_heads * (dim + 1) + 1, np.float32)
        self._results_NX = np.empty((group.size, len(self._result_X)), np.float32)
        self._sizes = constants(num_heads // model.num_key_heads, dim)

    def logits(self, ids_T: Tensor, positions_T: Tensor) -> Tensor:
        """[T, V] in float32 on rank 0; no rows on the others. Raises StepAborted."""
        model = self._model
        x_TK: Floats = model.embed(ids_T.long()).float().numpy()
        turn_2TD = self.turn(positions_T)
        parts_NX = np.empty((0, x_TK.size), np.float32)
        for number in range(len(model.layers)):
            parts_NX = self.layer(number, x_TK, parts_NX, turn_2TD)
        return self.output(x_TK, parts_NX)

    def turn(self, positions_T: Tensor) -> Floats:
        """Cosines and sines of RoPE for rows at these positions, [2, T, D]."""
        like = torch.empty(0, dtype=torch.float32)
        cos_1TD, sin_1TD = self._model.turn(like, positions_T[None])
        turn_2TD: Floats = torch.cat([cos_1TD, sin_1TD]).numpy()
        return turn_2TD

    def layer(self, number: int, x_TK: Floats, parts_NX: Floats, turn_2TD: Floats) -> Floats:
        """Bring `x_TK` through a layer but for the sums of its MLP, which are returned; those of
        the layer before are `parts_NX`."""
        layer, kv_2TGD = self._model.layers[number], bits(self._kv_2TGD)
        enter(parallel=self._parallel)(
            x_TK,
            parts_NX,
            layer.projections,
            turn_2TD if layer.has_positions else turn_2TD[:, :, :0].copy(),
            layer.scale,
            self._q_THD,
            kv_2TGD[0],
            kv_2TGD[1],
        )
        self._attend(number, layer)
        first, last = self._share.of(len(layer.rest.gate_MK))
        part_TK = np.empty_like(x_TK)
        if leave(parallel=self._parallel)(
            x_TK,
            self._group.gather_floats(self._result_X, self._results_NX),
            layer.rest,
            first,
            last,
            part_TK,
        ):
            raise StepAborted
        return self._shared_out(part_TK)

    def _attend(self, number: int, layer: CompiledLayer) -> None:
        """Fill `_result_X`: outputs of all rows and heads, their lse, the wish to stop."""
        model, run = self._model, attend(parallel=self._parallel)
        num_groups, num_folded = model.num_key_heads, model.num_heads // model.num_key_heads
        at_lse = self._q_THD.size
        out_TGRD = self._result_X[:at_lse].reshape(-1, num_groups, num_folded, model.head_dim)
        lse_TGR = self._result_X[at_lse:-1].reshape(-1, num_groups, num_folded)
        for t, part in enumerate(self._parts):
            part.store(number, self._kv_2TGD[0, t, :, None], self._kv_2TGD[1, t, :, None])
            spans_X2 = part.spans(layer.window)
            if len(spans_X2) == 0:
                out_TGRD[t], lse_TGR[t] = 0.0, LOWEST
                continue
            k_GSD, v_GSD = part.read(number)
            run(
                self._q_THD[t].reshape(num_groups, num_folded, model.head_dim),
                strip(k_GSD),
                strip(v_GSD),
                spans_X2,
                *self._sizes,
                out_TGRD[t],
                lse_TGR[t],
            )
        self._result_X[-1] = float(self._stop())

    def _shared_out(self, part: Floats) -> Floats:
        """Every rank's part, [N, X]."""
        mine_X = part.reshape(-1)
        if self._share.size == 1:
            return mine_X[None]
        return self._group.gather_floats(
            mine_X, np.empty((self._group.size, mine_X.size), np.float32)
        )

    def output(self, x_TK: Floats, parts_NX: Floats) -> Tensor:
        """The logits of what the last layer left; see `logits`."""
        model, num_rows = self._model, len(x_TK)
        vocab_size = len(model.output_VK)
        step = -(-vocab_size // self._share.size)
        is_shared = self._group.is_near(4 * num_rows * step)
        share = self._share if is_shared else Share(0, 1)
        if not is_shared and self._group.rank != 0:
            return torch.empty(0, vocab_size)
        first, last = share.of(vocab_size)
        own_TV = np.zeros((num_rows, step if is_shared else vocab_size), np.float32)
        finish(parallel=self._parallel)(
            x_TK, parts_NX, model.norm_K, model.epsilon, model.output_VK[first:last], own_TV
        )
        everybody_NX = self._shared_out(own_TV) if is_shared else own_TV.reshape(1, -1)
        if self._group.rank != 0:
            return torch.empty(0, vocab_size)
        by_rank_NTV = everybody_NX.reshape(len(everybody_NX), num_rows, -1)
        logits_TV = by_rank_NTV.transpose(1, 0, 2).reshape(num_rows, -1)[:, :vocab_size]
        return torch.from_numpy(logits_TV)
