"""The processes of a soak: upstream, worker and the gateway, whose insides are looked at.

What is looked at is what an operator can see: /proc, /metrics, the log and the database.
"""

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.rivals.gateways import await_health, free_port

CONTEXT_TOKENS = 200_000
NUM_PORTS = 4
ASK_S = 120.0
METRIC = re.compile(r"^(ringway_\w+)(?:\{([^}]*)\})? ([0-9.e+-]+)$", re.MULTILINE)

UPSTREAMS = """
models:
  soak-chat:
    context_tokens: {context}
    tokenizer: {tokenizer}
    replicas:
      - {{url: "http://127.0.0.1:{ports[0]}", kind: openai}}
      - {{url: "http://127.0.0.1:{ports[1]}", kind: openai}}
  soak-ids:
    context_tokens: {context}
    tokenizer: {tokenizer}
    replicas:
      - {{url: "http://127.0.0.1:{ports[2]}", kind: vllm}}
      - {{url: "http://127.0.0.1:{ports[3]}", kind: vllm}}
"""

POLICY = """
auto: {full_max_tokens: 200000, hierarchical_max_tokens: 200000}
prices: {full: [{input: 3, cached_input: 0.3, output: 15}], retrieval: [{input: 3, output: 15}]}
tenancy: {long_prompt_tokens: 32768, cached_token_weight: 1.0}
"""


@dataclass(frozen=True, slots=True)
class Sample:
    """The gateway's process at one time. `tasks` are its event loop's."""

    at_s: float
    rss_bytes: int
    fds: int
    threads: int
    tasks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class House:
    folder: Path
    port: int
    pid: int
    upstream_port: int
    has_worker: bool

    def sample(self) -> Sample:
        status = Path(f"/proc/{self.pid}/status").read_text()
        told = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
        return Sample(
            at_s=time.monotonic(),
            rss_bytes=int(told["VmRSS"].split()[0]) * 1024,
            fds=len(os.listdir(f"/proc/{self.pid}/fd")),
            threads=int(told["Threads"]),
            tasks=int(self.metrics()["ringway_tasks"]),
        )

    def metrics(self) -> Mapping[str, float]:
        """Sums over labels."""
        sums: dict[str, float] = {}
        for name, _, value in METRIC.findall(_get(self.port, "/metrics").decode()):
            sums[name] = sums.get(name, 0.0) + float(value)
        return sums

    def upstream(self) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(_get(self.upstream_port, "/stats"))
        return told

    def log(self) -> list[dict[str, Any]]:
        """Its lines so far; what is no JSON comes as `{"stray": line}`."""
        return [_line(one) for one in (self.folder / "gateway.log").read_text().splitlines()]

    def spent_micros(self) -> Mapping[str, int]:
        """By key, as kept on disk."""
        path = self.folder / "data" / "metadata.db"
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as database:
            rows = database.execute(
                "SELECT key_id, sum(micros) FROM api_key_spending GROUP BY key_id"
            ).fetchall()
        database.close()
        return dict(rows)


@contextmanager
def running_house(
    folder: Path, tokenizer: Path, *, faults: float, seed: int, with_worker: bool
) -> Iterator[House]:
    """A gateway over a faulty upstream, with or without a worker; all end with the block."""
    ports = [free_port() for _ in range(NUM_PORTS)]
    port, ingest = free_port(), free_port()
    data = folder / "data"
    (folder / "upstreams.yaml").write_text(
        UPSTREAMS.format(context=CONTEXT_TOKENS, tokenizer=tokenizer, ports=ports)
    )
    (folder / "ringway.yaml").write_text(POLICY)
    environ = {
        "RINGWAY_UPSTREAMS": str(folder / "upstreams.yaml"),
        "RINGWAY_POLICY": str(folder / "ringway.yaml"),
        "RINGWAY_DATA_DIR": str(data),
        "RINGWAY_INGEST": f"http://127.0.0.1:{ingest}",
        "RINGWAY_KEEP_ALIVE_S": "1",
        "RINGWAY_LOG_FORMAT": "json",
    }
    upstream = ["tests.bench.soaking.upstream", "--faults", str(faults), "--seed", str(seed)]
    with ExitStack() as stack:
        start = stack.enter_context
        start(_process([*upstream, "--ports", *map(str, ports)], folder / "upstream.log"))
        if with_worker:
            worker = ["gateway", "ingest", "--port", str(ingest), "--data-dir", str(data)]
            start(_process(worker, folder / "worker.log"))
        gateway = ["gateway", "serve", "--port", str(port)]
        pid = start(_process(gateway, folder / "gateway.log", environ))
        await_health(port, "/health/live")
        if with_worker:
            await_health(ingest, "/health/ready")
        yield House(
            folder=folder,
            port=port,
            pid=pid,
            upstream_port=ports[0],
            has_worker=with_worker,
        )


@contextmanager
def _process(
    module: Sequence[str], log: Path, environ: Mapping[str, str] | None = None
) -> Iterator[int]:
    with log.open("wb") as file:
        running = subprocess.Popen(
            [sys.executable, "-m", *module],
            stdout=file,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environ or {})},
        )
        try:
            yield running.pid
        finally:
            running.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                running.wait(10)
            running.kill()
            running.wait()


def _get(port: int, path: str) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=ASK_S) as reply:
        body: bytes = reply.read()
        return body


def _line(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {"stray": text}
    return found if isinstance(found, dict) else {"stray": text}
