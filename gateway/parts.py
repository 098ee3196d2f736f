"""What a running gateway is made of, handed to `create_app`; builds nothing."""

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from engines.api import Engine
from gateway.auth import KeyRing
from gateway.metrics import Metrics
from gateway.policy import Policy
from ingest.api import Library


def _new_id() -> str:
    return secrets.token_hex(16)


def _new_seed() -> int:
    return secrets.randbits(31)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """`clock` is Unix seconds, `monotonic` the clock of deadlines. `new_id` gives hex."""

    engine: Engine
    library: Library
    policy: Policy
    keys: KeyRing = field(default_factory=KeyRing)
    metrics: Metrics = field(default_factory=Metrics)
    max_body_bytes: int = 64 * 2**20
    max_upload_bytes: int = 512 * 2**20
    keep_alive_s: float = 10.0
    clock: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    new_id: Callable[[], str] = _new_id
    new_seed: Callable[[], int] = _new_seed
