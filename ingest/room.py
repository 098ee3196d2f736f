"""How much text may be on its way at a time; knows numbers only."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Room:
    """Characters of all documents between parser and index, first come first served.

    A document larger than the whole room is let in when it is alone.
    """

    def __init__(self, num_chars: int) -> None:
        self._num_chars = num_chars
        self._num_taken = 0
        self._entrance = asyncio.Lock()
        self._left = asyncio.Event()

    @asynccontextmanager
    async def taken(self, num_chars: int) -> AsyncIterator[None]:
        """Waits until so much fits."""
        async with self._entrance:
            while self._num_taken and self._num_taken + num_chars > self._num_chars:
                self._left.clear()
                await self._left.wait()
            self._num_taken += num_chars
        try:
            yield
        finally:
            self._num_taken -= num_chars
            self._left.set()
