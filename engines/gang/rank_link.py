"""A rank's connection to its supervisor, for threads; knows messages, no torch and no model."""

import os
import queue
import socket
import struct
import threading
from collections.abc import Iterator
from typing import BinaryIO

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


class HungUp(Exception):
    """The supervisor did not let this rank in, or is gone."""


class SupervisorLink:
    """Messages in order for the main thread, and cancels as they come, even during a step.

    When the supervisor is gone this process has no purpose left: it ends at once, wherever the
    main thread is.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._stream: BinaryIO = connection.makefile("rb")
        self._inbox: queue.SimpleQueue[ToRank] = queue.SimpleQueue()
        self._cancelled: set[int] = set()

    @classmethod
    def dial(cls, order: RankOrder) -> "SupervisorLink":
        """Say hello and begin to listen. Raises OSError."""
        link = cls.connect(order.supervisor_host, order.supervisor_port)
        link.send(Hello(rank=order.rank, epoch=order.epoch, pid=os.getpid(), token=order.token))
        link.listen()
        return link

    @classmethod
    def connect(cls, host: str, port: int) -> "SupervisorLink":
        """Raises OSError."""
        connection = socket.create_connection((host, port), timeout=DIAL_TIMEOUT_S)
        connection.settimeout(None)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return cls(connection)

    @property
    def own_host(self) -> str:
        """The address of this machine over which the supervisor is reached."""
        host: str = self._socket.getsockname()[0]
        return host

    def send(self, message: FromRank) -> None:
        body = encode(message)
        self._socket.sendall(LENGTH.pack(len(body)) + body)

    def receive(self) -> ToRank:
        """The next message, before `listen`. Raises HungUp."""
        try:
            (num_bytes,) = LENGTH.unpack(self._stream.read(LENGTH.size))
            return decode_to_rank(self._stream.read(num_bytes))
        except (OSError, struct.error, msgspec.DecodeError) as error:
            raise HungUp("the supervisor hung up") from error

    def listen(self, *received: ToRank) -> None:
        """Take in everything from now on, after what was received before."""
        for message in received:
            self._inbox.put(message)
        threading.Thread(target=self._read, name="supervisor", daemon=True).start()

    def is_cancelled(self, sequence_id: int) -> bool:
        return sequence_id in self._cancelled

    def messages(self) -> Iterator[ToRank]:
        """All but Cancel, in order, up to Stop. A closed sequence is no longer cancelled."""
        while not isinstance(message := self._inbox.get(), Stop):
            if isinstance(message, Close):
                self._cancelled.discard(message.sequence_id)
            yield message

    def close(self) -> None:
        self._stream.close()
        self._socket.close()

    def _read(self) -> None:
        try:
            while not isinstance(message := self.receive(), Stop):
                if isinstance(message, Cancel):
                    self._cancelled.add(message.sequence_id)
                else:
                    self._inbox.put(message)
            self._inbox.put(message)
        except HungUp:
            os._exit(1)
