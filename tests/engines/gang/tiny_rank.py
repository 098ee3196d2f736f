"""A real rank of a tiny model whose memory can be made to run out, for tests.

A file `short` in the model's folder makes rank 1 fail to allocate in steps of prompts that are
`HUNGRY`: "before 16" inside a layer once it has more than 16 rows, while the others wait in an
exchange; "after 16" when everything has been exchanged and the others are done.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from engines.config import EngineConfig
from engines.gang.order import RankOrder
from engines.gang.rank import Rank, start_logging
from engines.gang.rank_link import SupervisorLink
from engines.gang.ring_runner import RingRunner
from engines.local.executor import Executor
from engines.local.hook import AttentionPass, LayerCall
from engines.local.loading import Decoder, load_model
from engines.local.ring import RingGroup

HUNGRY = 250
"""A prompt that holds this id in every chunk is one of those."""


class FailingPass:
    """Fails in the middle of the model."""

    def __init__(self, attending: AttentionPass) -> None:
        self._attending = attending

    def attend(self, call: LayerCall) -> tuple[Tensor, Tensor]:
        if call.layer == 2:
            ask_for_too_much()
        return self._attending.attend(call)


class HungryDecoder(Decoder):
    def __init__(self, inner: Decoder, order: Path) -> None:
        self._inner = inner
        self._order = order
        self.vocab_size = inner.vocab_size
        self.window_tokens = inner.window_tokens
        self.num_layers = inner.num_layers
        self.shape = inner.shape
        self.wide_layers = inner.wide_layers
        self._compiled = None

    def forward(
        self, ids_T: Tensor, positions_T: Tensor, attending: AttentionPass, keep: Sequence[int]
    ) -> Tensor:
        when, most = self._order.read_text().split() if self._order.exists() else ("", "0")
        fails = when and HUNGRY in ids_T.tolist() and len(ids_T) > int(most)
        if fails and when == "before":
            attending = FailingPass(attending)
        logits = self._inner.forward(ids_T, positions_T, attending, keep)
        if fails:
            ask_for_too_much()
        return logits


def ask_for_too_much() -> None:
    torch.empty(1 << 50)


def make(config: EngineConfig, ring: RingGroup) -> Executor:
    decoder = load_model(config.model_dir, config.dtype)
    if ring.rank == 1:
        decoder = HungryDecoder(decoder, config.model_dir / "short")
    return Executor(config, ring, decoder)


def main(order: RankOrder) -> None:
    start_logging(order.rank)
    rank = Rank(SupervisorLink.dial(order), order.rank)
    os._exit(rank.serve(lambda rendezvous: RingRunner.load(order, rendezvous, make)))
