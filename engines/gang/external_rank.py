"""A rank that something else has started, on whatever host: asks a supervisor to be let in.

Knows how to dial until let in and what to bring along; the rest is `rank`.
"""

import hashlib
import logging
import os
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

import psutil

from engines.api import EngineLost, EngineRefused
from engines.gang.meeting import offer
from engines.gang.messages import Hello, Join
from engines.gang.order import ANY_EPOCH, RankOrder, decode_config
from engines.gang.rank import serve_and_exit, start_logging
from engines.gang.rank_link import HungUp, SupervisorLink

logger = logging.getLogger(__name__)

RETRY_S = 0.5
DIGESTED_BYTES = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """Who this rank is and what it may use here.

    `host` is the name of rank 0's machine for all ranks; `local_rank` counts those of this one.
    `interface` is where ranks talk to each other: None means the one over which the supervisor is
    reached. The rest of the configuration comes from the supervisor, so that all ranks have the
    same.
    """

    supervisor_host: str
    supervisor_port: int
    token: str
    rank: int
    size: int
    host: str
    model_dir: Path
    threads_per_rank: int
    local_rank: int = 0
    interface: str | None = None
    wait_s: float = 600.0


def serve_member(member: Member) -> NoReturn:
    """Be a rank of the supervisor's next gang until that ends, and the process with it.

    Raises EngineLost when no supervisor lets this rank in, and EngineRefused when it belongs to a
    gang of another size.
    """
    start_logging(member.rank)
    link, join = let_in(member)
    config = decode_config(join.config)
    if config.ranks != member.size:
        raise EngineRefused(f"the gang has {config.ranks} ranks; WORLD_SIZE is {member.size}")
    order = RankOrder(
        supervisor_host=member.supervisor_host,
        supervisor_port=member.supervisor_port,
        token=member.token,
        rank=member.rank,
        local_rank=member.local_rank,
        epoch=ANY_EPOCH,
        config=replace(
            config, model_dir=member.model_dir, threads_per_rank=member.threads_per_rank
        ),
        interface=member.interface or interface_of(link.own_host),
        host=_host_of(member),
        model_digest=model_digest(member.model_dir),
    )
    link.listen(join)
    serve_and_exit(link, order)


def let_in(member: Member) -> tuple[SupervisorLink, Join]:
    """Dial until a supervisor is there and wants this rank; then wait for the others as well."""
    until_s = time.monotonic() + member.wait_s
    while True:
        try:
            link = SupervisorLink.connect(member.supervisor_host, member.supervisor_port)
        except OSError as error:
            cause = str(error)
        else:
            try:
                return link, _greet(link, member)
            except (OSError, HungUp) as error:
                link.close()
                cause = f"{error}; its token may be another, or its gang may be complete"
        if time.monotonic() > until_s:
            address = f"{member.supervisor_host}:{member.supervisor_port}"
            raise EngineLost(
                f"the supervisor at {address} did not let rank {member.rank} in "
                f"within {member.wait_s:g} s: {cause}"
            )
        time.sleep(RETRY_S)


def _greet(link: SupervisorLink, member: Member) -> Join:
    link.send(
        Hello(
            rank=member.rank,
            epoch=ANY_EPOCH,
            pid=os.getpid(),
            token=member.token,
            offer=offer(_host_of(member)),
        )
    )
    message = link.receive()
    if not isinstance(message, Join):
        raise HungUp("the supervisor began with another message than Join")
    return message


def _host_of(member: Member) -> str:
    """Ranks meet at rank 0."""
    return member.host if member.rank == 0 else ""


def interface_of(address: str) -> str:
    """The network interface that has this address. Raises EngineRefused."""
    for name, addresses in psutil.net_if_addrs().items():
        if any(known.address == address for known in addresses):
            return name
    raise EngineRefused(f"no network interface here has the address {address}; name one")


def model_digest(model_dir: Path) -> str:
    """Equal for equal models, and cheap: the configuration, and the ends of every weights file."""
    digest = hashlib.sha256((model_dir / "config.json").read_bytes())
    for path in sorted(model_dir.glob("*.safetensors")):
        digest.update(f"{path.name} {path.stat().st_size}".encode())
        with path.open("rb") as weights:
            digest.update(weights.read(DIGESTED_BYTES))
            weights.seek(-min(DIGESTED_BYTES, path.stat().st_size), os.SEEK_END)
            digest.update(weights.read())
    return digest.hexdigest()
