"""An OpenAI-compatible server without a model that fails now and then, in a process of its own.

    python -m tests.bench.soaking.upstream --ports 9001 9002 --faults 0.01 --seed 7

Answers chats, and completions of token ids as vLLM does, always as streams. GET /stats tells what
came, what failed on purpose and what is going on. Knows nothing of who asks.
"""

import argparse
import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random

SILENCE_S = (4.0, 9.0)
WORDS = ("the ", "lease ", "ends ", "in ", "March ", "near ", "Käse ", "東京 ", "and ", "so. ")
MOST_PIECES = 12
MOST_TOKEN_ID = 40_000


class Fault(StrEnum):
    """When and how an answer fails."""

    ERROR = "status 500"
    BUSY = "status 503"
    HANG_UP = "hangs up before its head"
    AFTER_HEAD = "hangs up after its head"
    MIDWAY = "hangs up in mid-answer"
    FRAME = "an error frame in mid-answer"
    SILENCE = "silence, then hangs up"


class Left(Exception):
    """The caller left before the answer's end."""


@dataclass(slots=True)
class Book:
    requests: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    left: int = 0
    open: int = 0
    connections: int = 0

    def told(self) -> bytes:
        """To somebody whose own connection does not count."""
        told = {
            "requests": self.requests,
            "faults": dict(self.faults),
            "left": self.left,
            "open": self.open,
            "connections": self.connections - 1,
        }
        return json.dumps(told).encode()


@dataclass(frozen=True, slots=True)
class Asked:
    is_chat: bool
    body: dict[str, object]
    num_bytes: int

    @property
    def num_choices(self) -> int:
        n = self.body.get("n")
        return n if isinstance(n, int) else 1

    @property
    def most_tokens(self) -> int:
        for name in ("max_tokens", "max_completion_tokens"):
            limit = self.body.get(name)
            if isinstance(limit, int):
                return limit
        return MOST_PIECES

    @property
    def prompt_tokens(self) -> int:
        """Of a chat, what some other tokenizer might say."""
        prompt = self.body.get("prompt")
        return len(prompt) if isinstance(prompt, list) else self.num_bytes // 4 + 3


class FaultyServer:
    """`faults` in [0, 1] is the share of requests that fail."""

    def __init__(self, faults: float, rng: Random) -> None:
        self._faults = faults
        self._rng = rng
        self.book = Book()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.book.connections += 1
        try:
            while await self._exchange(reader, writer):
                pass
            writer.transport.abort()
        except Left:
            self.book.left += 1
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.book.connections -= 1
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Whether the connection goes on."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.strip().split("\r\n")
        if first.startswith("GET /stats"):
            writer.write(_whole(200, self.book.told()))
            return True
        named = {k.lower(): v for k, _, v in (line.partition(": ") for line in lines)}
        raw = await reader.readexactly(int(named["content-length"]))
        asked = Asked("/chat/" in first, json.loads(raw), len(raw))
        self.book.requests += 1
        self.book.open += 1
        try:
            async with _until_left(reader) as leaving:
                return await self._answer(asked, _Stream(writer, leaving), self._fault())
        finally:
            self.book.open -= 1

    def _fault(self) -> Fault | None:
        if self._rng.random() >= self._faults:
            return None
        fault = self._rng.choice(list(Fault))
        self.book.faults[fault.name] += 1
        return fault

    async def _answer(self, asked: Asked, stream: "_Stream", fault: Fault | None) -> bool:
        rng = self._rng
        await stream.pause(rng.uniform(0.002, 0.05) + asked.prompt_tokens * 1e-6)
        match fault:
            case Fault.ERROR:
                stream.write(_whole(500, b'{"error": {"message": "boom", "type": "x"}}'))
                return True
            case Fault.BUSY:
                stream.write(_whole(503, b'{"error": {"message": "busy"}}', "retry-after: 0.2"))
                return True
            case Fault.SILENCE:
                await stream.pause(rng.uniform(*SILENCE_S))
                return False
            case Fault.HANG_UP:
                return False
        stream.begin()
        if fault is Fault.AFTER_HEAD:
            return False
        frames = _frames(asked, rng)
        stop_at = rng.randrange(1, len(frames)) if fault else len(frames)
        for frame in frames[:stop_at]:
            stream.frame(frame)
            await stream.pause(rng.uniform(0.0, 0.02))
        if fault is Fault.MIDWAY:
            return False
        if fault is Fault.FRAME:
            stream.frame(b'{"error": {"message": "CUDA error", "type": "x"}}')
        stream.end()
        return True


class _Stream:
    def __init__(self, writer: asyncio.StreamWriter, leaving: "asyncio.Future[bytes]") -> None:
        self._writer = writer
        self._leaving = leaving
        self.write = writer.write

    async def pause(self, seconds: float) -> None:
        """Raises Left."""
        done, _ = await asyncio.wait({self._leaving}, timeout=seconds)
        if done:
            raise Left

    def begin(self) -> None:
        self.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
            b"transfer-encoding: chunked\r\n\r\n"
        )

    def frame(self, data: bytes) -> None:
        event = b"data: %b\n\n" % data
        self.write(b"%x\r\n%b\r\n" % (len(event), event))

    def end(self) -> None:
        self.frame(b"[DONE]")
        self.write(b"0\r\n\r\n")


@asynccontextmanager
async def _until_left(reader: asyncio.StreamReader) -> AsyncIterator["asyncio.Future[bytes]"]:
    """Done when the caller closes its connection; nobody pipelines."""
    leaving = asyncio.ensure_future(reader.read(1))
    try:
        yield leaving
    finally:
        leaving.cancel()
        with suppress(asyncio.CancelledError, ConnectionError):
            await leaving


def _frames(asked: Asked, rng: Random) -> list[bytes]:
    """The answer's pieces, its choices interleaved, and its usage."""
    num_pieces = rng.randint(1, max(1, min(MOST_PIECES, asked.most_tokens)))
    choices = range(asked.num_choices)
    pieces = [_piece(asked, index, rng) for _ in range(num_pieces) for index in choices]
    if asked.is_chat and "tools" in asked.body and rng.random() < 0.5:
        pieces = [_call(part, index) for part in range(3) for index in choices]
    ends = [_choice(index, asked, finish_reason="stop") for index in choices]
    prompt = asked.prompt_tokens
    usage = {
        "prompt_tokens": prompt,
        "completion_tokens": len(pieces) + rng.randint(0, 3),
        "prompt_tokens_details": {"cached_tokens": rng.choice((0, prompt // 2))},
    }
    frames = [{"choices": [one]} for one in (*pieces, *ends)]
    return [json.dumps(one).encode() for one in (*frames, {"choices": [], "usage": usage})]


def _choice(index: int, asked: Asked, **fields: object) -> dict[str, object]:
    empty: dict[str, object] = {"delta": {}} if asked.is_chat else {"text": ""}
    return {"index": index, **empty, **fields}


def _piece(asked: Asked, index: int, rng: Random) -> dict[str, object]:
    if asked.is_chat:
        return {"index": index, "delta": {"content": rng.choice(WORDS)}}
    return {"index": index, "text": "", "token_ids": [rng.randrange(100, MOST_TOKEN_ID)]}


def _call(part: int, index: int) -> dict[str, object]:
    function = ({"name": "look_up", "arguments": ""}, {"arguments": '{"q":'}, {"arguments": "1}"})
    call: dict[str, object] = {"index": 0, "function": function[part]}
    if part == 0:
        call |= {"id": "call_1", "type": "function"}
    return {"index": index, "delta": {"tool_calls": [call]}}


def _whole(status: int, body: bytes, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} Said", "content-type: application/json", *headers]
    return "\r\n".join([*lines, f"content-length: {len(body)}", "", ""]).encode() + body


async def serve(ports: Sequence[int], faults: float, seed: int) -> None:
    server = FaultyServer(faults, Random(seed))
    async with asyncio.TaskGroup() as group:
        for port in ports:
            listener = await asyncio.start_server(server.serve, "127.0.0.1", port, limit=2**24)
            group.create_task(listener.serve_forever())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ports", type=int, nargs="+", required=True)
    parser.add_argument("--faults", type=float, default=0.01)
    parser.add_argument("--seed", type=int, default=7)
    args = parser.parse_args()
    asyncio.run(serve(args.ports, args.faults, args.seed))


if __name__ == "__main__":
    main()
