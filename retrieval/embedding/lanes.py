"""Threads that run the pieces of concurrent calls in turns; knows nothing of what they compute."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Barrier, Lock
from typing import Generic, TypeVar

Result = TypeVar("Result")


class Lanes:
    """A new call's first piece goes before the later pieces of others, then all take turns: a
    query waits for what is running and not for a whole ingest."""

    def __init__(self, num_lanes: int, *, prepare: Callable[[], None]) -> None:
        self._num_lanes = num_lanes
        self._prepare = prepare
        self._threads = ThreadPoolExecutor(num_lanes, thread_name_prefix="embedder")
        self._lock = Lock()
        self._waiting: deque[_Call[object]] = deque()
        """Calls with pieces left; as many pieces in all as turns in the threads' queue."""

    def start(self) -> None:
        """Begin all threads, each of which calls `prepare`. Blocks until they have."""
        together = Barrier(self._num_lanes)

        def begin() -> None:
            self._prepare()
            together.wait()

        for begun in [self._threads.submit(begin) for _ in range(self._num_lanes)]:
            begun.result()

    async def run(self, pieces: Sequence[Callable[[], Result]]) -> list[Result]:
        """The results, in order; the first error ends the call. Of a cancelled call no further
        piece begins."""
        if not pieces:
            return []
        call = _Call(pieces)
        with self._lock:
            self._waiting.appendleft(call)  # type: ignore[arg-type]
        for _ in pieces:
            self._threads.submit(self._turn)
        return await asyncio.wrap_future(call.done)

    def _turn(self) -> None:
        with self._lock:
            call = self._waiting.popleft()
            place = call.take()
            if call.num_left:
                self._waiting.append(call)
        call.run(place)


class _Call(Generic[Result]):
    def __init__(self, pieces: Sequence[Callable[[], Result]]) -> None:
        self.done: Future[list[Result]] = Future()
        self._pieces = pieces
        self._num_taken = 0
        self._lock = Lock()
        self._results: dict[int, Result] = {}

    @property
    def num_left(self) -> int:
        return len(self._pieces) - self._num_taken

    def take(self) -> int:
        self._num_taken += 1
        return self._num_taken - 1

    def run(self, place: int) -> None:
        """Nothing when the call has ended already."""
        if self.done.done():
            return
        try:
            result = self._pieces[place]()
        except BaseException as error:
            with self._lock:
                if not self.done.done() and self.done.set_running_or_notify_cancel():
                    self.done.set_exception(error)
            raise
        with self._lock:
            self._results[place] = result
            is_last = len(self._results) == len(self._pieces)
            if is_last and self.done.set_running_or_notify_cancel():
                self.done.set_result([self._results[i] for i in range(len(self._pieces))])
