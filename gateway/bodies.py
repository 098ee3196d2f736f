"""Request bodies off the wire under a cap; knows sizes, not what is in them."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sized
from typing import TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.types import Message, Receive

from gateway.api import BodyTooLarge, ClientLeft
from gateway.long_json import ObjectReader

INLINE_BYTES = 32_768
"""A body up to this is parsed on the event loop: a thread costs more than the parsing."""

SLICE_BYTES = 65_536
"""What is decoded at once, on the event loop: a fraction of a millisecond."""

R = TypeVar("R", bound=Sized)
T = TypeVar("T")


async def read_body(request: Request, limit_bytes: int) -> bytes:
    """Raises BodyTooLarge, at once when the client announces too much, or ClientLeft."""
    return b"".join([chunk async for chunk in _chunks(request, limit_bytes)])


async def read_object(request: Request, limit_bytes: int) -> ObjectReader:
    """A JSON body, decoded while it comes. Raises what `read_body` does, and InvalidRequest."""
    reader = ObjectReader()
    async for chunk in _chunks(request, limit_bytes):
        for start in range(0, len(chunk), SLICE_BYTES):
            if start:
                await asyncio.sleep(0)
            reader.feed(chunk[start : start + SLICE_BYTES])
    return reader


async def _chunks(request: Request, limit_bytes: int) -> AsyncGenerator[bytes, None]:
    refuse_announced(request, limit_bytes)
    num_bytes = 0
    try:
        async for chunk in request.stream():
            num_bytes += len(chunk)
            if num_bytes > limit_bytes:
                raise BodyTooLarge(limit_bytes=limit_bytes)
            yield chunk
    except ClientDisconnect:
        raise ClientLeft from None


def refuse_announced(request: Request, limit_bytes: int) -> None:
    announced = request.headers.get("content-length", "")
    if announced.isascii() and announced.isdigit() and int(announced[:20]) > limit_bytes:
        raise BodyTooLarge(limit_bytes=limit_bytes)


def capped(receive: Receive, limit_bytes: int) -> Receive:
    """`receive` that raises BodyTooLarge once more than `limit_bytes` of body came."""
    num_bytes = 0

    async def receive_capped() -> Message:
        nonlocal num_bytes
        message = await receive()
        num_bytes += len(message.get("body", b""))
        if num_bytes > limit_bytes:
            raise BodyTooLarge(limit_bytes=limit_bytes)
        return message

    return receive_capped


async def off_loop(work: Callable[[R], T], raw: R) -> T:
    """Run `work` on the body, in a thread when the body is big."""
    if len(raw) <= INLINE_BYTES:
        return work(raw)
    return await asyncio.to_thread(work, raw)
