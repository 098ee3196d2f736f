"""The gateways that are compared, each one process on the core it is given; measures nothing."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.bench.load import Target

MASTER_KEY = "sk-ringway-bench-3f1c9a7e5d"
CONTEXT_TOKENS = 2_000_000
START_S = 180.0
LITELLM_ENVIRON = {"LITELLM_TELEMETRY": "False", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}

LITELLM = """
model_list:
  - model_name: mock
    litellm_params: {{model: openai/mock, api_base: "{upstream}/v1", api_key: unused}}
    model_info: {{max_input_tokens: 2000000}}
router_settings: {{enable_pre_call_checks: true, num_retries: 0}}
general_settings: {{master_key: {key}}}
litellm_settings: {{telemetry: false}}
"""

UPSTREAMS = """
models:
  mock:
    context_tokens: {context}
    tokenizer: {tokenizer}
    replicas: [{{url: "{upstream}", kind: openai}}]
"""

POLICY = "auto: {full_max_tokens: 2000000, hierarchical_max_tokens: 2000000}\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Where everything is: a scratch folder, the mock's URL, the peers, and the gateways' core."""

    folder: Path
    upstream: str
    peers: Path
    core: int | None


@contextlib.contextmanager
def ringway(bench: Bench, tokenizer: Path) -> Iterator[Target]:
    """Exact counting, routing, keys and metrics on, as they always are."""
    upstreams, policy = bench.folder / "upstreams.yaml", bench.folder / "ringway.yaml"
    upstreams.write_text(
        UPSTREAMS.format(context=CONTEXT_TOKENS, tokenizer=tokenizer, upstream=bench.upstream)
    )
    policy.write_text(POLICY)
    port = free_port()
    environ = {
        "RINGWAY_UPSTREAMS": str(upstreams),
        "RINGWAY_POLICY": str(policy),
        "RINGWAY_DATA_DIR": str(bench.folder / "data"),
        "RINGWAY_API_KEYS": MASTER_KEY,
    }
    command = [sys.executable, "-m", "gateway", "serve", "--port", str(port)]
    target = Target(name="ringway", port=port, headers=(f"authorization: Bearer {MASTER_KEY}",))
    with process(command, bench, environ):
        await_health(port, "/health/live")
        yield target


@contextlib.contextmanager
def litellm(bench: Bench) -> Iterator[Target | None]:
    """With its token check before the call on."""
    program = bench.peers / "bin" / "litellm"
    if not program.exists():
        yield None
        return
    config = bench.folder / "litellm.yaml"
    config.write_text(LITELLM.format(upstream=bench.upstream, key=MASTER_KEY))
    port = free_port()
    command = [str(program), "--config", str(config), "--port", str(port), "--num_workers", "1"]
    with process([*command, "--host", "127.0.0.1"], bench, LITELLM_ENVIRON):
        await_health(port, "/health/liveliness")
        yield Target(name="litellm", port=port, headers=(f"authorization: Bearer {MASTER_KEY}",))


@contextlib.contextmanager
def sglang(bench: Bench) -> Iterator[Target | None]:
    python = bench.peers / "bin" / "python"
    if not (bench.peers / "bin" / "sglang-router").exists():
        yield None
        return
    port, metrics = free_port(), free_port()
    command = [str(python), "-m", "sglang_router.launch_router", "--host", "127.0.0.1"]
    command += ["--port", str(port), "--prometheus-port", str(metrics), "--log-level", "error"]
    with process([*command, "--worker-urls", bench.upstream], bench, {}):
        await_health(port, "/health")
        yield Target(name="sglang", port=port)


@contextlib.contextmanager
def portkey(bench: Bench) -> Iterator[Target | None]:
    """Its streams fail as shipped; it is asked for whole answers only."""
    script = bench.peers / "node" / "node_modules" / "@portkey-ai" / "gateway" / "build"
    node = shutil.which("node")
    if node is None or not script.exists():
        yield None
        return
    port = free_port()
    command = [node, str(script / "start-server.js"), "--headless", f"--port={port}"]
    headers = (
        "x-portkey-provider: openai",
        f"x-portkey-custom-host: {bench.upstream}/v1",
        "authorization: Bearer unused",
    )
    with process(command, bench, {"TRUSTED_CUSTOM_HOSTS": "127.0.0.1", "NODE_ENV": "production"}):
        await_health(port, "/")
        yield Target(name="portkey", port=port, headers=headers)


@contextlib.contextmanager
def process(command: Sequence[str], bench: Bench, environ: dict[str, str]) -> Iterator[int]:
    """Its pid; its output is in the scratch folder. Ended, with its children, at the end."""
    name = f"{Path(command[0]).name}-{len(list(bench.folder.glob('*.log')))}"
    with (bench.folder / f"{name}.log").open("wb") as log:
        running = subprocess.Popen(
            command,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environ},
            start_new_session=True,
            preexec_fn=on_core(bench.core),
        )
        try:
            yield running.pid
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGTERM)
            try:
                running.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(running.pid, signal.SIGKILL)
                running.wait(10)


def on_core(core: int | None) -> Callable[[], None] | None:
    if core is None:
        return None
    return lambda: os.sched_setaffinity(0, {core})


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def await_health(port: int, path: str, limit_s: float = START_S) -> None:
    end_s = time.monotonic() + limit_s
    while not _answers(f"http://127.0.0.1:{port}{path}"):
        if time.monotonic() > end_s:
            raise TimeoutError(f"nothing healthy at port {port} within {limit_s:.0f} s")
        time.sleep(0.2)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as response:
            ok: bool = response.status == 200
            return ok
    except (urllib.error.URLError, OSError):
        return False
