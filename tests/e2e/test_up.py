"""`ringway up` as a process: starts, refuses, stops, survives, leaves nothing behind."""

import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from gateway.cli.processes import is_ready
from tests.e2e.running import Running, command, refusal

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(180)]


def test_a_second_up_on_the_same_data_folder_refuses_in_one_sentence(running: Running) -> None:
    code, output = refusal(command(running.data_dir, "--port", "0"))

    assert code == 2
    assert "is in use by another ringway" in output
    assert "Traceback" not in output
    assert running.client().models.list().data


def test_a_busy_port_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, output = refusal(command(tmp_path, "--port", str(port)))

    assert code == 2
    assert f"port {port} on 127.0.0.1 is taken" in output
    assert "Traceback" not in output


def test_a_killed_parent_leaves_no_process_and_no_damage_and_sigint_stops_all(
    tmp_path: Path,
) -> None:
    """In one, since each start takes seconds; SIGTERM is how `running` ends."""
    it = Running(tmp_path)
    try:
        file = it.client().files.create(
            file=("a.txt", b"The vault code is 4711."), purpose="user_data"
        )
        it.process.kill()
        it.process.wait(5)
        assert it.survivors(within_s=12) == []
    finally:
        it.end()

    again = Running(tmp_path)
    try:
        assert again.client().files.retrieve(file.id).filename == "a.txt"
        again.process.send_signal(signal.SIGINT)
        assert again.process.wait(20) == 0
        assert len(again.tree) >= 5  # engine, forker, two ranks, ingest, gateway
        assert again.survivors(within_s=1) == []
    finally:
        again.end()


def test_up_is_ready_within_fifteen_seconds(running: Running, tmp_path: Path) -> None:
    """On cores that import the embedder's library in 6 s; slower or busier ones get 2.5 imports."""
    if running.ready_s > 15.0:
        again = Running(tmp_path)
        again.end()
        assert again.ready_s <= max(15.0, 2.5 * import_s("sentence_transformers"))


def import_s(module: str) -> float:
    """Seconds that a new process takes for one import, just now."""
    started = time.monotonic()
    subprocess.run([sys.executable, "-c", f"import {module}"], check=True)
    return time.monotonic() - started


def test_the_gateway_starts_where_torch_cannot_be_imported(running: Running) -> None:
    script = (
        "import sys\n"
        "for name in ('torch', 'transformers', 'sentence_transformers', 'lancedb'):\n"
        "    sys.modules[name] = None\n"  # importing it now raises ImportError
        "from gateway.cli.main import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    engine, ingest = running.url_of("engine"), running.url_of("ingest")
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]
    process = subprocess.Popen(
        [
            *(sys.executable, "-c", script, "serve", "--port", str(port)),
            *("--data-dir", str(running.data_dir), "--engine", engine, "--ingest", ingest),
        ]
    )
    try:
        url = f"http://127.0.0.1:{port}"
        with httpx.Client() as client:
            for _ in range(100):
                if is_ready(client, url):
                    break
                assert process.poll() is None
                try:
                    process.wait(0.1)
                except subprocess.TimeoutExpired:
                    continue
            assert is_ready(client, url)
    finally:
        process.terminate()
        process.wait(10)
