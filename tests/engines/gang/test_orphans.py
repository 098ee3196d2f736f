import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from engines.face.wire import encode_request
from tests.engines.gang.scripted_gang import request
from tests.engines.gang.scripted_rank import SLOW_READ

pytestmark = pytest.mark.ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """An engine in a process of its own; `pids` are the forker's and its ranks'."""

    process: subprocess.Popen[str]
    port: int
    pids: list[int]


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Running]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.engines.gang.supervised", str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    port, *pids = [int(word) for word in process.stdout.readline().split()]
    yield Running(process=process, port=port, pids=pids)
    process.kill()
    process.wait()
    process.stdin.close()
    process.stdout.close()
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def alive(pids: list[int]) -> list[int]:
    return [
        pid
        for pid in pids
        if psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    ]


def wait_until_gone(pids: list[int], timeout_s: float) -> list[int]:
    until_s = time.monotonic() + timeout_s
    while time.monotonic() < until_s and alive(pids):
        time.sleep(0.01)
    return alive(pids)


def test_the_death_of_the_supervisor_leaves_no_process(engine: Running) -> None:
    assert len(alive(engine.pids)) == 3
    engine.process.kill()
    assert wait_until_gone(engine.pids, 2.0) == []


@pytest.mark.skipif(sys.platform != "linux", reason="needs the kernel's parent-death signal")
def test_not_even_a_stopped_rank_survives_the_supervisor(engine: Running) -> None:
    for pid in engine.pids:
        os.kill(pid, signal.SIGSTOP)
    engine.process.kill()
    assert wait_until_gone(engine.pids, 2.0) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_everything_cleanly_while_a_client_waits(
    engine: Running, number: signal.Signals
) -> None:
    with socket.create_connection(("127.0.0.1", engine.port)) as client:
        client.sendall(slow_request())
        assert client.recv(100).startswith(b"HTTP/1.1 200")
        started_s = time.monotonic()
        engine.process.send_signal(number)
        assert engine.process.wait(timeout=5) == 0
        assert time.monotonic() - started_s < 3
        assert wait_until_gone(engine.pids, 0.1) == []
        assert b"event: failure" in read_to_end(client)


def test_the_end_of_standard_input_stops_everything_cleanly(engine: Running) -> None:
    assert engine.process.stdin is not None
    engine.process.stdin.close()
    assert engine.process.wait(timeout=5) == 0
    assert wait_until_gone(engine.pids, 0.1) == []


def slow_request() -> bytes:
    body = encode_request(request(SLOW_READ), time.monotonic())
    head = f"POST /v1/generate HTTP/1.1\r\nhost: engine\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def read_to_end(client: socket.socket) -> bytes:
    parts = []
    while part := client.recv(4096):
        parts.append(part)
    return b"".join(parts)
