import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.gateway import plain_http
from tests.gateway.test_serve import wait_until_live

SCRIPT = """
import asyncio, socket, sys
from pathlib import Path
from engines.fake import FakeSettings
from gateway.admin.board import PolicyBoard
from gateway.app import create_app
from gateway.cli.hosting import Hosting
from gateway.policy import load_policy
from tests.gateway.fakes import BpeEngine, bpe_say, make_parts

drain_s, policy = float(sys.argv[1]), Path(sys.argv[2])
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)

async def main():
    board = PolicyBoard(load_policy(policy), clock=lambda: 1.0, load=lambda: load_policy(policy))
    engine = BpeEngine(bpe_say("word " * 60), FakeSettings(token_delay_s=0.05))
    parts = make_parts(engine, board=board)
    hosting = Hosting(listener=listener, drain_s=drain_s)
    await hosting(create_app(parts), drain=parts.drain.finish, on_reload=board.reload)
    print("aborted", len(engine.aborted), "finished", len(engine.finished), flush=True)

asyncio.run(main())
"""

QUESTION = {"model": "fake", "messages": [{"role": "user", "content": "hi"}], "stream": True}


@contextmanager
def gateway(drain_s: float, policy: Path) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    policy.write_text("auto: {full_max_tokens: 4096}")
    command = [sys.executable, "-c", SCRIPT, str(drain_s), str(policy)]
    env = {name: value for name, value in os.environ.items() if "RINGWAY" not in name}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as process:
        try:
            assert process.stdout is not None
            url = f"http://127.0.0.1:{int(process.stdout.readline())}"
            wait_until_live(url)
            yield process, url
        finally:
            process.kill()


@pytest.mark.timeout(90)
def test_a_stopping_gateway_turns_red_refuses_new_work_and_finishes_its_streams(
    tmp_path: Path,
) -> None:
    policy = tmp_path / "ringway.yaml"
    with (
        gateway(60, policy) as (process, url),
        httpx.Client(base_url=url, timeout=60, verify=False) as client,
        client.stream("POST", "/v1/chat/completions", json=QUESTION) as answer,
    ):
        lines = answer.iter_lines()
        assert any("content" in line for line in lines)
        policy.write_text("auto: {full_max_tokens: 77}")
        process.send_signal(signal.SIGHUP)
        wait_for_threshold(client, 77)
        process.send_signal(signal.SIGTERM)
        wait_for_red(client)
        refused = client.post("/v1/chat/completions", json=QUESTION)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "draining")
        assert int(refused.headers["retry-after"]) >= 1
        assert client.get("/health/live").status_code == 200
        rest = list(lines)
        assert rest[-2] == "data: [DONE]"
        assert not any("error" in line for line in rest)
        assert process.stdout is not None
        assert process.stdout.readline() == "aborted 0 finished 1\n"
        assert process.wait(20) == 0


@pytest.mark.timeout(90)
def test_what_does_not_finish_in_time_is_cut_with_an_error(tmp_path: Path) -> None:
    with (
        gateway(0.2, tmp_path / "ringway.yaml") as (process, url),
        plain_http.stream(
            "POST", f"{url}/v1/chat/completions", json=QUESTION, timeout=60
        ) as answer,
    ):
        lines = answer.iter_lines()
        assert any("content" in line for line in lines)
        process.send_signal(signal.SIGTERM)
        frames = [line for line in lines if line.startswith("data: ")]
        assert '"code":"draining"' in frames[-1]
        assert process.stdout is not None
        assert process.stdout.readline() == "aborted 1 finished 0\n"
        assert process.wait(20) == 0


def wait_for_red(client: httpx.Client) -> None:
    for _ in range(400):
        ready = client.get("/health/ready")
        if ready.status_code == 503:
            assert ready.json() == {"status": "draining"}
            return
        time.sleep(0.01)
    pytest.fail("readiness did not turn red")


def wait_for_threshold(client: httpx.Client, full_max_tokens: int) -> None:
    for _ in range(400):
        policy = client.get("/admin/routing").json()["policy"]
        if policy["auto"]["full_max_tokens"] == full_max_tokens:
            return
        time.sleep(0.01)
    pytest.fail("the file was not read again")
