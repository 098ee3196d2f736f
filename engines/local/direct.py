"""Small exchanges between the ranks of one host, through shared memory or sockets of their own.

Knows bytes and peers; does not know tensors or attention. Decode exchanges about 2 kB twice per
layer, and gloo hands each message to a thread of its own first: on two cores that took 190 to
300 us where a socket takes 20 to 45. Where ranks share memory, sockets still tell who hung up.
"""

import os
import secrets
import select
import socket
import struct
import time
from typing import Protocol

from engines.local.board import SLOT_BYTES, Board, Gather
from engines.local.kernels.board import Bytes

MAX_BYTES = 1 << 16
"""Over sockets. All send before they receive, so a message must fit what the kernel holds."""

SPINS = 200
"""Looks before a rank goes to sleep: peers finish a layer within some microseconds."""

YIELDS = 500
"""Looks at shared memory that let other processes run first; later ones sleep in between."""

SLEEP_S = 100e-6

HELLO = struct.Struct("<qq")


class ShareMemory(Protocol):
    def __call__(self, gather: Gather, *, rank: int, size: int) -> Board | None:
        """Memory that all ranks share, or None on every one of them."""
        ...


SILENT = "a rank kept silent for longer than an operation may take"


class PeerLost(RuntimeError):
    """A rank hung up, or kept silent for longer than an operation may take."""


class DirectLinks:
    """A socket to every other rank. All ranks must call `exchange` in the same order."""

    def __init__(
        self,
        links: dict[int, socket.socket],
        rank: int,
        timeout_s: float,
        board: Board | None = None,
    ) -> None:
        self._links = dict(sorted(links.items()))
        self._rank = rank
        self._timeout_s = timeout_s
        self._board = board
        self.max_bytes = MAX_BYTES if board is None else SLOT_BYTES

    @classmethod
    def connect(
        cls,
        gather: Gather,
        *,
        rank: int,
        timeout_s: float,
        share: ShareMemory = Board.connect,
    ) -> "DirectLinks":
        """Meet the other ranks on loopback. Each proves itself by a number that only the ranks
        were told. Raises PeerLost when one does not come in `timeout_s`."""
        secret = secrets.randbits(62)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            listener.settimeout(timeout_s)
            ports = gather(listener.getsockname()[1])
            tokens = gather(secret)
            links: dict[int, socket.socket] = {}
            try:
                for peer in range(rank):
                    links[peer] = socket.create_connection(("127.0.0.1", ports[peer]), timeout_s)
                    links[peer].sendall(HELLO.pack(rank, tokens[peer]))
                while len(links) < len(ports) - 1:
                    peer, link = _welcomed(listener, secret, timeout_s)
                    if rank < peer < len(ports) and peer not in links:
                        links[peer] = link
                    else:
                        link.close()
            except OSError as error:
                raise PeerLost(f"the ranks of this host did not meet: {error}") from error
        for link in links.values():
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * MAX_BYTES)
            link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * MAX_BYTES)
            link.setblocking(False)
        board = share(gather, rank=rank, size=len(ports))
        return cls(links, rank, timeout_s, board)

    def exchange(self, mine_B: Bytes, everybody_NB: Bytes) -> None:
        """Put each rank's bytes into its row of `everybody_NB`; all have the length of `mine_B`.

        Raises PeerLost, and ValueError beyond `max_bytes`.
        """
        if mine_B.nbytes > self.max_bytes:
            raise ValueError(f"{mine_B.nbytes} bytes; a direct exchange takes {self.max_bytes}")
        if self._board is None:
            self._exchange_by_sockets(mine_B, everybody_NB)
            return
        late = self._board.swap(mine_B, everybody_NB)
        if late < len(everybody_NB):
            self._await(self._board, late, everybody_NB)

    def close(self) -> None:
        for link in self._links.values():
            link.close()

    def _exchange_by_sockets(self, mine_B: Bytes, everybody_NB: Bytes) -> None:
        everybody_NB[self._rank] = mine_B
        deadline_s = time.monotonic() + self._timeout_s
        for link in self._links.values():
            _send(link, mine_B.data, deadline_s)
        for peer, link in self._links.items():
            _receive(link, everybody_NB[peer].data, deadline_s)

    def _await(self, board: Board, late: int, everybody_NB: Bytes) -> None:
        deadline_s = time.monotonic() + self._timeout_s
        looks = 0
        while (late := board.collect(late, everybody_NB)) < len(everybody_NB):
            looks += 1
            if looks <= YIELDS:
                os.sched_yield()
                continue
            time.sleep(SLEEP_S)
            if _has_hung_up(self._links[late]) and board.collect(late, everybody_NB) == late:
                raise PeerLost("a rank hung up")
            if time.monotonic() > deadline_s:
                raise PeerLost(SILENT)


def _welcomed(listener: socket.socket, secret: int, timeout_s: float) -> tuple[int, socket.socket]:
    """The next caller; rank -1 if it does not know the secret."""
    link, _ = listener.accept()
    link.settimeout(timeout_s)
    hello = bytearray()
    while len(hello) < HELLO.size:
        part = link.recv(HELLO.size - len(hello))
        if not part:
            return -1, link
        hello += part
    peer, token = HELLO.unpack(hello)
    return (peer if token == secret else -1), link


def _send(link: socket.socket, data: memoryview, deadline_s: float) -> None:
    sent = 0
    while sent < data.nbytes:
        try:
            sent += link.send(data[sent:])
        except BlockingIOError:
            _wait(link, select.POLLOUT, deadline_s)
        except OSError as error:
            raise PeerLost(f"a rank hung up: {error}") from error


def _receive(link: socket.socket, into: memoryview, deadline_s: float) -> None:
    got, looks = 0, 0
    while got < into.nbytes:
        try:
            part = link.recv_into(into[got:])
        except BlockingIOError:
            looks += 1
            if looks > SPINS:
                _wait(link, select.POLLIN, deadline_s)
            continue
        except OSError as error:
            raise PeerLost(f"a rank hung up: {error}") from error
        if part == 0:
            raise PeerLost("a rank hung up")
        got += part


def _has_hung_up(link: socket.socket) -> bool:
    """Nothing is sent where memory is shared, so there is the end to read or nothing."""
    try:
        return link.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def _wait(link: socket.socket, event: int, deadline_s: float) -> None:
    poll = select.poll()
    poll.register(link, event)
    left_s = deadline_s - time.monotonic()
    if left_s <= 0 or not poll.poll(left_s * 1000):
        raise PeerLost(SILENT)
