"""Starts and stops the processes of `ringway up`; knows none of their insides."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx

STOP_GRACE_S = 10.0


@dataclass(slots=True)
class Child:
    """One `ringway` subcommand with a listening socket of ours and a log file.

    It runs in a session of its own, so that a Ctrl-C in the terminal reaches only us and the
    stop goes down in order. Its standard input is its lifeline (see `gateway.cli.lifeline`).
    """

    name: str
    sock: socket.socket
    log: Path
    process: "subprocess.Popen[bytes]" = field(init=False)

    @property
    def url(self) -> str:
        host, port = self.sock.getsockname()[:2]
        return f"http://{host}:{port}"

    def start(self, arguments: Sequence[str]) -> None:
        fd = self.sock.fileno()
        command = [sys.executable, "-m", "gateway", self.name, "--fd", str(fd)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--lifeline", *arguments],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=[fd],
                start_new_session=True,
            )

    def last_words(self, num_lines: int = 8) -> str:
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return "\n".join(f"    {line}" for line in lines[-num_lines:])


def listen(host: str, port: int) -> socket.socket:
    """A listening TCP socket. Raises OSError when the address is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio turns Nagle's delay off only on sockets whose protocol is named: 40 ms a reply.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(512)
    except OSError:
        sock.close()
        raise
    return sock


def is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health/ready", timeout=1.0).status_code == 200
    except httpx.HTTPError:
        return False


def stop(children: Sequence[Child]) -> None:
    """Stop in the given order of asking, together; after the grace nobody is left.

    Killing the whole session at the end also ends ranks and parsers that outlived their parent.
    """
    for child in children:
        if child.process.poll() is None:
            child.process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + STOP_GRACE_S
    for child in children:
        try:
            child.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            pass
        finally:
            kill_session(child.process.pid)
            child.process.wait()


def kill_session(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
