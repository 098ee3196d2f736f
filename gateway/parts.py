"""What a running gateway is made of, handed to `create_app`; builds nothing."""

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pydantic import SecretStr

from engines.api import Engine
from gateway.admin.board import PolicyBoard
from gateway.admin.shapes import Shapes
from gateway.auth import KeyRing
from gateway.batches.api import BatchStore
from gateway.drain import Drain
from gateway.metrics import Metrics
from gateway.policy import Policy
from gateway.responses.storage import MemoryResponses, ResponseStore
from gateway.stored.api import ChatStore, MemoryChats
from gateway.telemetry.api import Tracing
from gateway.tenancy.accounts import Accounts
from gateway.tenancy.keys import IssuedKeys
from gateway.tenancy.memory_limits import MemoryLimits
from gateway.tenancy.spending import MemorySpending
from ingest.api import Library
from ingest.embeddings_api import Embeddings


def _new_id() -> str:
    return secrets.token_hex(16)


def _new_seed() -> int:
    return secrets.randbits(31)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """`clock` is Unix seconds, `monotonic` the clock of deadlines. `new_id` gives hex.

    `policy` is the one to start with; `board` has the one in force. `models` are the engines by
    the name they serve; without any, `engine` serves its own.
    """

    engine: Engine
    library: Library
    policy: Policy
    models: Mapping[str, Engine] = field(default_factory=dict)
    keys: KeyRing = field(default_factory=KeyRing)
    issued: IssuedKeys | None = None
    admin_key: SecretStr | None = None
    board: PolicyBoard = None  # type: ignore[assignment]  # of `policy`, when none is given
    accounts: Accounts = None  # type: ignore[assignment]  # in memory, when none are given
    shapes: Shapes = field(default_factory=Shapes)
    drain: Drain = field(default_factory=Drain)
    tracing: Tracing | None = None
    metrics: Metrics = field(default_factory=Metrics)
    embeddings: Embeddings | None = None
    chats: ChatStore = field(default_factory=MemoryChats)
    responses: ResponseStore = field(default_factory=MemoryResponses)
    response_days: int = 30
    batches: BatchStore | None = None
    max_body_bytes: int = 64 * 2**20
    max_upload_bytes: int = 512 * 2**20
    keep_alive_s: float = 10.0
    clock: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    new_id: Callable[[], str] = _new_id
    new_seed: Callable[[], int] = _new_seed

    def __post_init__(self) -> None:
        if self.board is None:
            object.__setattr__(self, "board", PolicyBoard(self.policy, clock=self.clock))
        if self.accounts is None:
            accounts = Accounts(
                MemoryLimits(clock=self.clock),
                MemorySpending(),
                clock=self.clock,
                refused=self.metrics.refused,
            )
            object.__setattr__(self, "accounts", accounts)
