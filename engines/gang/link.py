"""Frames to and from ranks, and the door where ranks dial in; decides nothing."""

import asyncio
import hmac
import logging
import struct
from types import TracebackType

import msgspec

from engines.gang.messages import (
    FromRank,
    Hello,
    ToRank,
    decode_from_rank,
    encode,
)
from engines.gang.order import ANY_EPOCH

logger = logging.getLogger(__name__)

LENGTH = struct.Struct(">I")
HELLO_TIMEOUT_S = 10.0
HELLO_MAX_BYTES = 4096
FRAME_MAX_BYTES = 16 << 20


class LinkLost(Exception):
    """The other end is gone, or spoke nonsense."""


def frame(message: ToRank | FromRank) -> bytes:
    body = encode(message)
    return LENGTH.pack(len(body)) + body


class RankLink:
    """The supervisor's connection to one rank."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.rank = -1
        self.offer = ""

    def send(self, framed: bytes) -> None:
        """Queue one frame; never blocks, since a rank may be deep in a step."""
        self._writer.write(framed)

    async def receive(self, max_bytes: int = FRAME_MAX_BYTES) -> FromRank:
        """Raises LinkLost at the end of the connection and for anything malformed."""
        try:
            header = await self._reader.readexactly(LENGTH.size)
            (num_bytes,) = LENGTH.unpack(header)
            if num_bytes > max_bytes:
                raise LinkLost(f"rank {self.rank} announced a frame of {num_bytes} bytes")
            return decode_from_rank(await self._reader.readexactly(num_bytes))
        except (OSError, asyncio.IncompleteReadError) as error:
            raise LinkLost(f"rank {self.rank} hung up") from error
        except msgspec.DecodeError as error:
            raise LinkLost(f"rank {self.rank} sent no message: {error}") from error

    def close(self) -> None:
        """Hang up once what is queued has been sent."""
        self._writer.close()


class Door:
    """Where ranks dial in. Only ranks of the gang being gathered, with its token, come through."""

    def __init__(self, *, token: str, host: str = "127.0.0.1", port: int = 0) -> None:
        self._token = token
        self._host = host
        self._port = port
        self._server: asyncio.Server | None = None
        self._epoch = 0
        self._missing: set[int] = set()
        self._arrived: asyncio.Queue[RankLink] = asyncio.Queue()

    async def __aenter__(self) -> "Door":
        # A cancellation inside start_server would leave a socket listening that nobody can close.
        self._server = await asyncio.start_server(
            self._on_dial, self._host, self._port, start_serving=False
        )
        try:
            await self._server.start_serving()
        except BaseException:
            self._server.close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()

    @property
    def address(self) -> tuple[str, int]:
        assert self._server is not None
        host, port, *_ = self._server.sockets[0].getsockname()
        return host, port

    def expect(self, epoch: int, num_ranks: int) -> None:
        """From now on let in ranks 0 .. num_ranks-1 of this epoch, once each."""
        self._epoch = epoch
        self._missing = set(range(num_ranks))
        while not self._arrived.empty():
            self._arrived.get_nowait().close()

    async def admit(self, num_ranks: int) -> list[RankLink]:
        """Wait for that many ranks and return them by rank."""
        links: list[RankLink] = []
        try:
            while len(links) < num_ranks:
                links.append(await self._arrived.get())
        except asyncio.CancelledError:
            for link in links:
                link.close()
            raise
        return sorted(links, key=lambda link: link.rank)

    async def _on_dial(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = RankLink(reader, writer)
        try:
            async with asyncio.timeout(HELLO_TIMEOUT_S):
                hello = await link.receive(HELLO_MAX_BYTES)
        except (LinkLost, TimeoutError):
            hello = None
        if isinstance(hello, Hello) and self._is_expected(hello):
            self._missing.discard(hello.rank)
            link.rank, link.offer = hello.rank, hello.offer
            self._arrived.put_nowait(link)
        else:
            logger.warning("hung up on a stranger")
            link.close()

    def _is_expected(self, hello: Hello) -> bool:
        is_ours = hmac.compare_digest(hello.token.encode(), self._token.encode())
        is_now = hello.epoch in (self._epoch, ANY_EPOCH)
        return is_ours and is_now and hello.rank in self._missing
