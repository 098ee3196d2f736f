import asyncio
import gc
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from engines.gang.link import LENGTH, Door, LinkLost, frame
from engines.gang.messages import Close, FromRank, Hello, Ready


def hello(rank: int = 0, epoch: int = 1, token: str = "secret") -> Hello:
    return Hello(rank=rank, epoch=epoch, pid=1, token=token)


class Street:
    """An open door and everybody who dialled in there."""

    def __init__(self, door: Door) -> None:
        self.door = door
        self.writers: list[asyncio.StreamWriter] = []

    async def dial(self, message: FromRank | bytes) -> asyncio.StreamReader:
        reader, writer = await asyncio.open_connection(*self.door.address)
        writer.write(message if isinstance(message, bytes) else frame(message))
        self.writers.append(writer)
        return reader


@asynccontextmanager
async def street(num_ranks: int, epoch: int = 1) -> AsyncIterator[Street]:
    async with Door(token="secret") as door:
        door.expect(epoch, num_ranks)
        outside = Street(door)
        yield outside
        for writer in outside.writers:
            writer.close()


@pytest.mark.parametrize(
    "stranger",
    [
        hello(token="guess"),
        hello(epoch=7),
        hello(rank=5),
        Ready(rank=0, peak_rss_bytes=1),
        b"GET / HTTP/1.1\r\n\r\n",
        LENGTH.pack(1 << 30),
        LENGTH.pack(3) + b"\xc1\xc1\xc1",
    ],
)
async def test_a_stranger_is_hung_up_on(stranger: FromRank | bytes) -> None:
    async with street(num_ranks=1) as outside:
        reader = await outside.dial(stranger)
        assert await reader.read() == b""


async def test_a_rank_comes_in_once_and_gets_what_is_sent() -> None:
    async with street(num_ranks=2) as outside:
        one, zero = await outside.dial(hello(1)), await outside.dial(hello(0))
        links = await outside.door.admit(2)
        assert [link.rank for link in links] == [0, 1]
        again = await outside.dial(hello(0))
        assert await again.read() == b""
        links[1].send(frame(Close(sequence_id=3)))
        for link in links:
            link.close()
        assert (await zero.read(), await one.read()) == (b"", frame(Close(sequence_id=3)))


async def test_a_rank_without_an_epoch_of_its_own_joins_the_present_gang() -> None:
    async with street(num_ranks=1, epoch=9) as outside:
        await outside.dial(hello(epoch=-1))
        [link] = await outside.door.admit(1)
        link.close()


async def test_the_end_of_a_connection_is_a_lost_link() -> None:
    async with street(num_ranks=1) as outside:
        await outside.dial(hello())
        [link] = await outside.door.admit(1)
        outside.writers[0].close()
        with pytest.raises(LinkLost, match="rank 0 hung up"):
            await link.receive()
        link.close()


@pytest.mark.parametrize("num_turns", range(6))
async def test_a_door_whose_opening_is_cancelled_leaves_no_socket(num_turns: int) -> None:
    door = Door(token="secret", host="127.0.0.1")
    opening = asyncio.create_task(door.__aenter__())
    for _ in range(num_turns):
        await asyncio.sleep(0)
    opening.cancel()
    with suppress(asyncio.CancelledError):
        await opening
        await door.__aexit__(None, None, None)
    del door, opening
    with warnings.catch_warnings(record=True) as leaks:
        warnings.simplefilter("always", ResourceWarning)
        gc.collect()
    assert not leaks
