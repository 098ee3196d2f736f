"""How a gateway takes long prompts: what they cost it, and what others feel of them.

    python -m tests.bench.long_prompts [--runs 5] [--seed 7]

A gateway process of its own, with the bundled model's tokenizer and an engine that answers at
once, is asked over loopback. `health_stall_ms` is the slowest GET /health/live while four posts of
16 MB, all new, are read, counted and routed. `count_1m_ms` is the whole time of a new prompt of a
million tokens, from its first byte sent to the end of its answer; `memory_factor` the peak of the
process's memory beside it, over what it had before, in bodies. `refuse_ms` is from the last byte of
a 4 MB body that is too long for any route to its refusal. Prints progress, then one JSON object on
the last line.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from http.client import HTTPConnection
from pathlib import Path

import uvicorn

from engines.api import (
    Attention,
    EngineInfo,
    Event,
    FinishEvent,
    FinishReason,
    GenerateRequest,
    TokenEvent,
    TokenizerFiles,
)
from engines.fake import FakeEngine, FakeSettings
from engines.models.catalog import default_model_dir
from engines.models.folder import read_folder
from gateway.api import Route
from gateway.app import create_app
from gateway.parts import Parts
from gateway.policy import AutoPolicy, Policy
from ingest.fake import FakeLibrary

MODEL = "bench"
WHOLE_LIMIT = 50_000_000
SMALL_LIMIT = 8192
POST_BYTES = 16 * 2**20
REFUSED_BYTES = 4 * 2**20
NUM_POSTS = 4
MILLION_WORDS = 660_000
LEAST_TOKENS = 1_000_000
START_WITHIN_S = 120.0
ARRIVED_AFTER_S = 0.3


class InstantEngine(FakeEngine):
    """Answers one token at once: all that is measured is the gateway's."""

    def __init__(self, context_tokens: int, files: TokenizerFiles) -> None:
        limits = {Attention.FULL: SMALL_LIMIT, Attention.HIERARCHICAL: context_tokens}
        super().__init__(settings=FakeSettings(context_tokens=limits))
        self._files = files

    async def info(self) -> EngineInfo:
        digest = self._files.digest
        return replace(await super().info(), model=MODEL, tokenizer_digest=digest)

    async def tokenizer(self) -> TokenizerFiles:
        return self._files

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Event, None]:
        yield TokenEvent(request.prompt_ids[0])
        yield FinishEvent(
            reason=FinishReason.LENGTH,
            prompt_tokens=len(request.prompt_ids),
            cached_tokens=0,
            completion_tokens=1,
            queue_s=0.0,
            prefill_s=0.0,
            decode_s=0.0,
        )


@dataclass(frozen=True, slots=True)
class Gateway:
    port: int
    pid: int

    def connect(self) -> HTTPConnection:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=120)
        connection.connect()
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def memory_bytes(self, field: str) -> int:
        """`field` of the process's status: VmRSS is now, VmHWM the peak."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) * 1024
        raise LookupError(field)

    def forget_peak(self) -> None:
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")


@contextmanager
def running_gateway(context_tokens: int = WHOLE_LIMIT) -> Iterator[Gateway]:
    """A gateway in a process of its own, its tokenizer built."""
    with closing(socket.create_server(("127.0.0.1", 0))) as reserved:
        port = reserved.getsockname()[1]
    command = [sys.executable, "-m", "tests.bench.long_prompts", "--serve", str(port)]
    process = subprocess.Popen([*command, "--context-tokens", str(context_tokens)])
    gateway = Gateway(port, process.pid)
    try:
        _wait_until_answering(gateway)
        ask(gateway, body_of("Hello."))
        yield gateway
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def body_of(text: str) -> bytes:
    messages = [{"role": "user", "content": text}]
    return json.dumps({"model": MODEL, "messages": messages, "max_tokens": 1}).encode()


def prose(seed: int, num_words: int) -> str:
    """Never the same twice, so that nothing of it was counted before."""
    rng = random.Random(seed)
    text = (Path(__file__).parents[2] / "ARCHITECTURE.md").read_text()
    vocabulary = [word for word in text.split() if word.isalpha()]
    lines = []
    for _ in range(num_words // 12):
        words = rng.choices(vocabulary, k=11)
        lines.append(f"{' '.join(words)} {rng.randrange(10**4)}.")
    return "\n".join(lines) + "\n\nWhat does it say?"


def ask(gateway: Gateway, raw: bytes) -> tuple[int, dict[str, object]]:
    with closing(gateway.connect()) as connection:
        connection.request("POST", "/v1/chat/completions", raw)
        reply = connection.getresponse()
        return reply.status, json.loads(reply.read())


def health_stall_ms(gateway: Gateway, seed: int) -> float:
    """The worst of all health checks while the posts run."""
    words = POST_BYTES // 5
    bodies = [body_of(prose(seed + i, words)[-POST_BYTES:]) for i in range(NUM_POSTS)]
    posts = [threading.Thread(target=ask, args=(gateway, raw)) for raw in bodies]
    with closing(gateway.connect()) as prober:
        for post in posts:
            post.start()
        return 1000 * _worst_health(prober, lambda: any(post.is_alive() for post in posts))


def count_1m_ms(gateway: Gateway, seed: int) -> float:
    """All of one new prompt of a million tokens, sending included."""
    raw = body_of(prose(seed, MILLION_WORDS))
    started = time.perf_counter()
    status, answer = ask(gateway, raw)
    elapsed_ms = 1000 * (time.perf_counter() - started)
    told = answer["ringway"]
    assert isinstance(told, dict)
    assert status == 200
    assert told["prompt_tokens"] >= LEAST_TOKENS, told["prompt_tokens"]
    assert told["count_kind"] == "exact"
    return elapsed_ms


def memory_factor(gateway: Gateway, seed: int) -> float:
    """Peak memory beside a million tokens, in bodies; dashes make its characters two bytes wide."""
    raw = body_of(prose(seed, MILLION_WORDS).replace(" the ", " \u2014 "))
    gateway.forget_peak()
    before = gateway.memory_bytes("VmRSS")
    ask(gateway, raw)
    return (gateway.memory_bytes("VmHWM") - before) / len(raw)


def refuse_ms(small: Gateway, seed: int) -> float:
    """From the last byte to the refusal. `small` holds SMALL_LIMIT tokens.

    The last byte is sent when the others have arrived, as on a network slower than loopback.
    """
    raw = body_of(prose(seed, REFUSED_BYTES // 5)[-REFUSED_BYTES:])
    with closing(small.connect()) as connection:
        connection.putrequest("POST", "/v1/chat/completions")
        connection.putheader("content-length", str(len(raw)))
        connection.endheaders(raw[:-1])
        time.sleep(ARRIVED_AFTER_S)
        sent = time.perf_counter()
        connection.send(raw[-1:])
        reply = connection.getresponse()
        status, answer = reply.status, json.loads(reply.read())
        seconds = time.perf_counter() - sent
    error = answer["error"]
    assert isinstance(error, dict)
    assert status == 400
    assert error["code"] == "context_length_exceeded"
    assert "at least" in error["message"]
    return 1000 * seconds


def measure(runs: int, seed: int) -> dict[str, float]:
    """The worst stall and the most memory, and the medians of the others."""
    with running_gateway() as gateway:
        counts = _each(runs, "count_1m_ms", lambda i: count_1m_ms(gateway, seed + i))
        memory = _each(runs, "memory_factor", lambda i: memory_factor(gateway, seed + 100 + i))
        stalls = _each(
            max(1, runs // 2),
            "health_stall_ms",
            lambda i: health_stall_ms(gateway, seed + 200 + 4 * i),
        )
    with running_gateway(SMALL_LIMIT) as small:
        refusals = _each(runs, "refuse_ms", lambda i: refuse_ms(small, seed + 300 + i))
    return {
        "health_stall_ms": round(max(stalls), 1),
        "count_1m_ms": round(statistics.median(counts), 1),
        "memory_factor": round(max(memory), 2),
        "refuse_ms": round(statistics.median(refusals), 2),
    }


def _each(runs: int, name: str, run: Callable[[int], float]) -> list[float]:
    found = []
    for i in range(runs):
        found.append(run(i))
        print(f"{name} {found[-1]:.2f} (load {os.getloadavg()[0]:.1f})", flush=True)
    return found


def _worst_health(prober: HTTPConnection, goes_on: Callable[[], bool]) -> float:
    worst_s = 0.0
    while goes_on():
        asked = time.perf_counter()
        prober.request("GET", "/health/live")
        prober.getresponse().read()
        worst_s = max(worst_s, time.perf_counter() - asked)
        time.sleep(0.001)
    return worst_s


def _wait_until_answering(gateway: Gateway) -> None:
    ends_at = time.monotonic() + START_WITHIN_S
    while True:
        try:
            gateway.connect().close()
            return
        except OSError:
            if time.monotonic() > ends_at:
                raise
            time.sleep(0.05)


def serve(port: int, context_tokens: int) -> None:
    files = read_folder(default_model_dir()).tokenizer
    policy = Policy(
        auto=AutoPolicy(full_max_tokens=4096, hierarchical_max_tokens=context_tokens),
        allow=(Route.FULL, Route.HIERARCHICAL),
    )
    parts = Parts(engine=InstantEngine(context_tokens, files), policy=policy, library=FakeLibrary())
    config = uvicorn.Config(
        create_app(parts),
        port=port,
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
    )
    asyncio.run(uvicorn.Server(config).serve())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--context-tokens", type=int, default=WHOLE_LIMIT, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve is not None:
        serve(args.serve, args.context_tokens)
        return
    print(json.dumps(measure(args.runs, args.seed)))


if __name__ == "__main__":
    main()
