"""A rank's connection to its supervisor, for threads; knows messages, no torch and no model."""

import os
import queue
import socket
import struct
import threading
from collections.abc import Iterator

import msgspec

from engines.gang.messages import (
    Cancel,
    Close,
    FromRank,
    Hello,
    Stop,
    ToRank,
    decode_to_rank,
    encode,
)
from engines.gang.order import RankOrder

LENGTH = struct.Struct(">I")
DIAL_TIMEOUT_S = 30.0


class SupervisorLink:
    """Messages in order for the main thread, and cancels as they come, even during a step.

    When the supervisor is gone this process has no purpose left: it ends at once, wherever the
    main thread is.
    """

    def __init__(self, order: RankOrder) -> None:
        self._socket = socket.create_connection(
            (order.supervisor_host, order.supervisor_port), timeout=DIAL_TIMEOUT_S
        )
        self._socket.settimeout(None)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._inbox: queue.SimpleQueue[ToRank] = queue.SimpleQueue()
        self._cancelled: set[int] = set()
        self.send(Hello(rank=order.rank, epoch=order.epoch, pid=os.getpid(), token=order.token))
        threading.Thread(target=self._read, name="supervisor", daemon=True).start()

    def send(self, message: FromRank) -> None:
        body = encode(message)
        self._socket.sendall(LENGTH.pack(len(body)) + body)

    def is_cancelled(self, sequence_id: int) -> bool:
        return sequence_id in self._cancelled

    def messages(self) -> Iterator[ToRank]:
        """All but Cancel, in order, up to Stop. A closed sequence is no longer cancelled."""
        while not isinstance(message := self._inbox.get(), Stop):
            if isinstance(message, Close):
                self._cancelled.discard(message.sequence_id)
            yield message

    def _read(self) -> None:
        try:
            with self._socket.makefile("rb") as stream:
                while header := stream.read(LENGTH.size):
                    body = stream.read(LENGTH.unpack(header)[0])
                    message = decode_to_rank(body)
                    if isinstance(message, Cancel):
                        self._cancelled.add(message.sequence_id)
                        continue
                    self._inbox.put(message)
                    if isinstance(message, Stop):
                        return
        except (OSError, struct.error, msgspec.DecodeError):
            pass
        os._exit(1)
