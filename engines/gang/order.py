"""What a rank is told when it starts, and how that is written down; starts nothing itself."""

from pathlib import Path

import msgspec

from engines.config import EngineConfig

ANY_EPOCH = -1
"""The epoch of a rank that torchrun started: it belongs to whichever gang is being gathered."""


class RankOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Where a rank reports and who it is; where it meets the others it is told by Join.

    `local_rank` counts the ranks of its host. `interface` is the network interface over which
    ranks talk. `host` is this rank's own name for the others; it and `model_digest` are empty when
    all ranks share a host. `log` takes the rank's output; None leaves it on the standard error of
    the process that started the rank.
    """

    supervisor_host: str
    supervisor_port: int
    token: str
    rank: int
    local_rank: int
    epoch: int
    config: EngineConfig
    interface: str = "lo"
    host: str = ""
    model_digest: str = ""
    log: Path | None = None


def encode_order(order: RankOrder) -> bytes:
    return msgspec.json.encode(order, enc_hook=str)


def decode_order(line: bytes) -> RankOrder:
    """Raises msgspec.DecodeError for anything that is not an order."""
    return msgspec.json.decode(line, type=RankOrder, dec_hook=_path_of)


def encode_config(config: EngineConfig) -> bytes:
    return msgspec.json.encode(config, enc_hook=str)


def decode_config(body: bytes) -> EngineConfig:
    """Raises msgspec.DecodeError for anything that is no configuration."""
    return msgspec.json.decode(body, type=EngineConfig, dec_hook=_path_of)


def _path_of(kind: type, value: object) -> object:
    assert kind is Path
    return Path(str(value))
