"""Runs `ringway up` as a user would and finds its way around the processes it started."""

import re
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from queue import Empty, Queue
from typing import IO

import httpx
import psutil
from openai import OpenAI

READY_S = 90.0


class Running:
    """One `ringway up`. Whatever a test does to it, `end` leaves no process behind."""

    def __init__(self, data_dir: Path, *arguments: str) -> None:
        self.data_dir = data_dir
        started = time.monotonic()
        self.process = subprocess.Popen(
            command(data_dir, "--port", "0", *arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.lines: Queue[str] = Queue()
        assert self.process.stdout is not None
        threading.Thread(target=self._pump, args=(self.process.stdout,), daemon=True).start()
        try:
            self.url = self._await_url()
        except AssertionError:
            self.end()
            raise
        self.ready_s = time.monotonic() - started
        self.tree = psutil.Process(self.process.pid).children(recursive=True)

    def _pump(self, stream: IO[str]) -> None:
        with stream:
            for line in stream:
                self.lines.put(line)

    def _await_url(self) -> str:
        seen: list[str] = []
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            try:
                line = self.lines.get(timeout=0.5)
            except Empty:
                assert self.process.poll() is None, "".join(seen)
                continue
            seen.append(line)
            found = re.search(r"is ready after .*?(http://\S+)/v1", line)
            if found:
                return found[1]
        raise AssertionError("not ready:\n" + "".join(seen))

    def client(self) -> OpenAI:
        return OpenAI(base_url=f"{self.url}/v1", api_key="unused", max_retries=0, timeout=120)

    def named(self, name: str) -> psutil.Process:
        """The process of one subcommand (engine, ingest, serve)."""
        return next(p for p in self.tree if f" {name} " in " ".join(p.cmdline()[:5]))

    def url_of(self, name: str) -> str:
        listening = [c for c in self.named(name).net_connections() if c.status == "LISTEN"]
        for connection in listening:
            address = connection.laddr
            url = f"http://{address.ip}:{address.port}"
            try:
                if httpx.get(f"{url}/health/live", timeout=1.0).status_code == 200:
                    return url
            except httpx.HTTPError:
                continue
        raise AssertionError(f"{name} listens nowhere")

    def ranks(self) -> list[psutil.Process]:
        """The processes below the engine that hold a model."""
        below = self.named("engine").children(recursive=True)
        return [p for p in below if p.memory_info().rss > 200 << 20]

    def survivors(self, within_s: float) -> list[psutil.Process]:
        _, alive = psutil.wait_procs(self.tree, timeout=within_s)
        return [p for p in alive if p.status() != psutil.STATUS_ZOMBIE]

    def end(self) -> int:
        if self.process.poll() is None:
            self.process.terminate()
        try:
            return self.process.wait(20)
        except subprocess.TimeoutExpired:
            for child in psutil.Process(self.process.pid).children(recursive=True):
                child.kill()
            self.process.kill()
            return self.process.wait(5)


def command(data_dir: Path, *arguments: str) -> list[str]:
    return [
        sys.executable,
        "-m",
        "gateway",
        "up",
        "--data-dir",
        str(data_dir),
        *arguments,
    ]


def refusal(arguments: Sequence[str]) -> tuple[int, str]:
    """Run a command that must refuse; its exit code and what it printed."""
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout + done.stderr
