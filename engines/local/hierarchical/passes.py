"""The two forward passes of level 1: a block that is read alone, and the question that asks.

Both end at the deepest layer that votes: what lies above it is never computed.

Shapes: H query heads, G key heads, T rows, S keys, D head dim. Suffix order is dim order.
"""

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from engines.local.hook import LayerCall
from engines.local.kv import KvStore
from engines.local.passes import Stop, add_tiles
from engines.local.placement import Run, plan_tiles
from engines.local.ring import StepAborted
from engines.local.tiles import Accumulator


class LayersRead(Exception):
    """The deepest voting layer has its keys; the rest of the model need not run."""


class Anchor:
    """The prompt's first tokens, which every chunk and the question see; read once."""

    def __init__(self, num_tokens: int) -> None:
        self.run = Run(0, num_tokens)
        self.store = KvStore(num_tokens)
        self.is_read = num_tokens == 0

    def add(self, total: Accumulator, call: LayerCall, rows: Run) -> None:
        """Add what the anchor gives to rows at the positions `rows`."""
        plan = plan_tiles((rows,), (self.run,), call.window)
        if plan:
            add_tiles(total, call, *self.store.read(call.layer, 0, self.run.length), plan)


class BlockPass:
    """A block of tokens attends the anchor and itself; `keys` are those of the voting layers.

    No other rank is involved. Raises LayersRead at the last voting layer.
    """

    def __init__(self, anchor: Anchor, block: Run, voting: Sequence[int], stop: Stop) -> None:
        self.keys: list[Tensor] = []
        self._anchor = anchor
        self._block = block
        self._voting = voting
        self._stop = stop

    def attend(self, call: LayerCall) -> tuple[Tensor, Tensor]:
        if self._stop():
            raise StepAborted
        if call.layer in self._voting:
            self.keys.append(call.k_GTD)
        if call.layer == self._voting[-1]:
            raise LayersRead
        total = attended(self._anchor, call, self._block)
        return total.out_HTD, total.lse_HT


class AnchorPass:
    """The anchor attends itself and is stored. Raises LayersRead at the last voting layer."""

    def __init__(self, anchor: Anchor, voting: Sequence[int], stop: Stop) -> None:
        self._anchor = anchor
        self._voting = voting
        self._stop = stop

    def attend(self, call: LayerCall) -> tuple[Tensor, Tensor]:
        if self._stop():
            raise StepAborted
        self._anchor.store.write(call.layer, 0, call.k_GTD, call.v_GTD)
        if call.layer == self._voting[-1]:
            raise LayersRead
        total = Accumulator.like(call.q_HTD)
        add_tiles(
            total,
            call,
            call.k_GTD,
            call.v_GTD,
            plan_tiles((self._anchor.run,), (self._anchor.run,), call.window),
        )
        return total.out_HTD, total.lse_HT


class QuestionPass:
    """The question attends the anchor and itself: its queries are the same for every chunk, so
    chunks can be weighed as soon as they are read, and no chunk's values are ever needed.

    Of the voting layers: `queries`, scaled, of the voting rows, and `lses` over what they see
    besides chunks. Raises LayersRead at the last.
    """

    def __init__(
        self, anchor: Anchor, block: Run, rows_T: Tensor, voting: Sequence[int], stop: Stop
    ) -> None:
        self.queries: list[Tensor] = []
        self.lses: list[Tensor] = []
        self._anchor = anchor
        self._block = block
        self._rows_T = rows_T
        self._voting = voting
        self._stop = stop

    def attend(self, call: LayerCall) -> tuple[Tensor, Tensor]:
        if self._stop():
            raise StepAborted
        total = attended(self._anchor, call, self._block)
        if call.layer in self._voting:
            whole = total
            if call.window is not None:
                # Chunks have no distance from the question that means anything: no vote looks
                # through a window.
                whole = attended(self._anchor, replace(call, window=None), self._block)
            # Kept keys lie on the CPU, and are weighed there.
            self.queries.append(call.q_HTD[:, self._rows_T].float().cpu() * call.scale)
            self.lses.append(whole.lse_HT[:, self._rows_T].cpu())
        if call.layer == self._voting[-1]:
            raise LayersRead
        return total.out_HTD, total.lse_HT


def attended(anchor: Anchor, call: LayerCall, block: Run) -> Accumulator:
    total = Accumulator.like(call.q_HTD)
    add_tiles(total, call, call.k_GTD, call.v_GTD, plan_tiles((block,), (block,), call.window))
    if anchor.run.length:
        anchor.add(total, call, block)
    return total
