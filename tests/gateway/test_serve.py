import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from tests.gateway.fakes import Start

SCRIPT = """
import asyncio, socket, sys
from pathlib import Path
from gateway.cli.hosting import Hosting
from gateway.settings import GatewaySettings
from gateway.wiring import serve_gateway

listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
settings = GatewaySettings(data_dir=Path(sys.argv[1]), engine="http://127.0.0.1:9")
asyncio.run(serve_gateway(settings, Hosting(listener=listener, drain_s=1)))
heavy = {"torch", "transformers", "lancedb"} & set(sys.modules)
print("closed", sorted(heavy), flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_without_an_engine_and_stops_cleanly(tmp_path: Path, number: int) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        env={name: value for name, value in os.environ.items() if "RINGWAY" not in name},
    )
    with process:
        assert process.stdout is not None
        try:
            url = f"http://127.0.0.1:{int(process.stdout.readline())}"
            wait_until_live(url)
            ready = httpx.get(f"{url}/health/ready")
            assert (ready.status_code, ready.json()["engine"]) == (503, "unreachable")
            chat = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
            answer = httpx.post(f"{url}/v1/chat/completions", json=chat)
            assert (answer.status_code, answer.json()["error"]["code"]) == (502, "engine_lost")
            process.send_signal(number)
            assert process.stdout.readline() == "closed []\n"
            assert process.wait(10) == 0
        finally:
            process.kill()


def wait_until_live(url: str) -> None:
    for _ in range(200):
        try:
            assert httpx.get(f"{url}/health/live").status_code == 200
        except httpx.TransportError:
            time.sleep(0.05)
        else:
            return
    pytest.fail("the gateway did not start")


def test_ready_says_that_engine_and_library_are(start: Start) -> None:
    body = httpx.get(f"{start().url}/health/ready").json()
    assert body == {"status": "ready", "engine": "ready", "library": "ready"}
