"""What a rank is told when it starts, and how that is written down; starts nothing itself."""

from pathlib import Path

import msgspec

from engines.config import EngineConfig

ANY_EPOCH = -1
"""The epoch of a rank that torchrun started: it belongs to whichever gang is being gathered."""


class RankOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Where a rank reports, who it is, and how it meets the other ranks.

    `rendezvous` is torch.distributed's init_method. `log` takes the rank's output; None leaves
    it on the standard error of the process that started the rank.
    """

    supervisor_host: str
    supervisor_port: int
    token: str
    rank: int
    epoch: int
    rendezvous: str
    config: EngineConfig
    log: Path | None = None


def encode_order(order: RankOrder) -> bytes:
    return msgspec.json.encode(order, enc_hook=str)


def decode_order(line: bytes) -> RankOrder:
    """Raises msgspec.DecodeError for anything that is not an order."""
    return msgspec.json.decode(line, type=RankOrder, dec_hook=_path_of)


def _path_of(kind: type, value: object) -> object:
    assert kind is Path
    return Path(str(value))
