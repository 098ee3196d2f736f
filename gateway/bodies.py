"""Request bodies off the wire under a cap; knows sizes, not what is in them."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.types import Message, Receive

from gateway.api import BodyTooLarge, ClientLeft

INLINE_BYTES = 32_768
"""A body up to this is parsed on the event loop: a thread costs more than the parsing."""

T = TypeVar("T")


async def read_body(request: Request, limit_bytes: int) -> bytes:
    """Raises BodyTooLarge, at once when the client announces too much, or ClientLeft."""
    refuse_announced(request, limit_bytes)
    chunks: list[bytes] = []
    num_bytes = 0
    try:
        async for chunk in request.stream():
            num_bytes += len(chunk)
            if num_bytes > limit_bytes:
                raise BodyTooLarge(limit_bytes=limit_bytes)
            chunks.append(chunk)
    except ClientDisconnect:
        raise ClientLeft from None
    return b"".join(chunks)


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


async def off_loop(work: Callable[[bytes], T], raw: bytes) -> T:
    """Run `work` on the body, in a thread when the body is big."""
    if len(raw) <= INLINE_BYTES:
        return work(raw)
    return await asyncio.to_thread(work, raw)
