"""An OpenAI-compatible server without a model, in a process of its own; costs next to nothing.

    python mock_upstream.py PORT

Answers chats with two words, streamed or whole. `[[delay=0.5]]` near the end of a body delays the
answer by so many seconds. GET /stats tells how many requests came and how many clients left before
their answer. Needs nothing but the standard library, and uses uvloop where it is installed.
"""

import asyncio
import json
import re
import sys
from typing import cast

DELAY = re.compile(rb"\[\[delay=([0-9.]+)\]\]")
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
STREAM = re.compile(rb'"stream": ?true')
EDGE_BYTES = 1024

USAGE = {
    "prompt_tokens": 10,
    "completion_tokens": 2,
    "total_tokens": 12,
    "prompt_tokens_details": {"cached_tokens": 4},
}


def _chunk(choices: list[object], usage: object = None) -> bytes:
    body = {
        "id": "chatcmpl-mock",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "mock",
        "choices": choices,
        "usage": usage,
    }
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def _delta(finish: str | None, **delta: str) -> bytes:
    return _chunk([{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}])


def _response(body: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: "
    return head + str(len(body)).encode() + b"\r\n\r\n" + body


def _streamed(*frames: bytes) -> bytes:
    head = (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    )
    return head + b"".join(b"%x\r\n%b\r\n" % (len(one), one) for one in frames) + b"0\r\n\r\n"


WHOLE = _response(
    json.dumps(
        {
            "id": "chatcmpl-mock",
            "object": "chat.completion",
            "created": 1,
            "model": "mock",
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": "hello world"},
                    "logprobs": None,
                    "finish_reason": "stop",
                }
            ],
            "usage": USAGE,
        }
    ).encode()
)
STREAMED = _streamed(
    _delta(None, role="assistant", content=""),
    _delta(None, content="hello "),
    _delta(None, content="world"),
    _delta("stop"),
    _chunk([], USAGE),
    b"data: [DONE]\n\n",
)
MODELS = _response(
    json.dumps(
        {"object": "list", "data": [{"id": "mock", "object": "model", "created": 1}]}
    ).encode()
)


class Book:
    def __init__(self) -> None:
        self.requests = 0
        self.aborted = 0


class Mock(asyncio.Protocol):
    def __init__(self, book: Book) -> None:
        self._book = book
        self._received = bytearray()
        self._needed = 0
        self._waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclass of asyncio's.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= self._needed:
            head_end = self._received.find(b"\r\n\r\n")
            if head_end < 0:
                return
            head = bytes(self._received[:head_end])
            length = LENGTH.search(head)
            self._needed = head_end + 4 + (int(length[1]) if length else 0)
            if len(self._received) < self._needed:
                return
            body = self._received[head_end + 4 : self._needed]
            edges = bytes(body[:EDGE_BYTES] + body[-EDGE_BYTES:])
            del self._received[: self._needed]
            self._needed = 0
            self._answer(head, edges)

    def connection_lost(self, error: Exception | None) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._book.aborted += 1

    def _answer(self, head: bytes, edges: bytes) -> None:
        if head.startswith(b"GET /stats"):
            self._transport.write(_response(json.dumps(vars(self._book)).encode()))
        elif head.startswith(b"GET"):
            self._transport.write(MODELS)
        else:
            self._book.requests += 1
            reply = STREAMED if STREAM.search(edges) else WHOLE
            delay = DELAY.search(edges)
            if delay is None:
                self._transport.write(reply)
            else:
                loop = asyncio.get_running_loop()
                self._waiting = loop.call_later(float(delay[1]), self._late, reply)

    def _late(self, reply: bytes) -> None:
        self._waiting = None
        self._transport.write(reply)


async def main(port: int) -> None:
    book = Book()
    server = await asyncio.get_running_loop().create_server(lambda: Mock(book), "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    try:
        import uvloop
    except ImportError:
        asyncio.run(main(int(sys.argv[1])))
    else:
        uvloop.run(main(int(sys.argv[1])))
