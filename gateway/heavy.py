"""Work on prompts off the event loop: long ones one at a time, short ones past them.

Knows only how long a text is. Several long prompts at once would keep every core, and the GIL, from
the event loop; one already uses all cores.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import ParamSpec, TypeVar

INLINE_CHARS = 4096
"""Up to this a thread costs more than the work."""

LONG_CHARS = 1_000_000

P = ParamSpec("P")
T = TypeVar("T")


class HeavyLane:
    def __init__(self) -> None:
        self._turn = asyncio.Semaphore(1)

    async def run(
        self, num_chars: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Raises what `work` does. A long one that nobody waits for any more keeps its turn until
        it is done: a thread cannot be stopped."""
        if num_chars <= INLINE_CHARS:
            return work(*args, **kwargs)
        if num_chars <= LONG_CHARS:
            return await asyncio.to_thread(work, *args, **kwargs)
        await self._turn.acquire()
        loop = asyncio.get_running_loop()
        done = loop.run_in_executor(None, partial(work, *args, **kwargs))
        done.add_done_callback(self._end_turn)
        return await asyncio.shield(done)

    def _end_turn(self, done: "asyncio.Future[T]") -> None:
        self._turn.release()
        if not done.cancelled():
            # Read here, so that an error of abandoned work is no stray one.
            done.exception()
