"""Runs coroutines side by side; an error comes out as itself, not in a group.

Knows nothing of what runs.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from starlette.types import Receive

from engines.api import RequestExpired
from gateway.api import ClientLeft

T = TypeVar("T")


async def together(*work: Coroutine[Any, Any, T]) -> list[T]:
    """Results in order. The first failure cancels the rest and is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one) for one in work]
    except BaseExceptionGroup as failures:
        raise _first(failures) from None
    return [task.result() for task in tasks]


@asynccontextmanager
async def beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run `work` while the block runs. Its failure cancels the block, the block's end it."""
    try:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(work)
            yield
            task.cancel()
    except BaseExceptionGroup as failures:
        raise _first(failures) from None


async def while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`. A client that leaves cancels it: raises ClientLeft.

    The request's body must have been read.
    """
    async with beside(_until_disconnect(receive)):
        return await work


async def within(limit_s: float, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`; after `limit_s` seconds it is cancelled: raises RequestExpired."""
    try:
        async with asyncio.timeout(limit_s) as limit:
            return await work
    except TimeoutError as error:
        if limit.expired():
            raise RequestExpired(f"the answer took more than {limit_s:.0f} s") from None
        raise error


async def _until_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    raise ClientLeft


def _first(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    """The reason why the group ended: a client that left before what its leaving broke."""
    found = failures.exceptions[0]
    for one in failures.exceptions:
        if isinstance(one, ClientLeft):
            found = one
    return _first(found) if isinstance(found, BaseExceptionGroup) else found
