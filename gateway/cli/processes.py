"""Starts and stops the processes of `ringway up`; knows none of their insides."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
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
    arguments: Sequence[str]
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def url(self) -> str:
        return url_of(self.sock)

    def start(self) -> None:
        fd = self.sock.fileno()
        command = [sys.executable, "-m", "gateway", self.name, "--fd", str(fd)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--lifeline", *self.arguments],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                pass_fds=[fd],
                start_new_session=True,
            )

    def exit_code(self) -> int | None:
        """None while it runs, or before it was started."""
        return None if self.process is None else self.process.poll()

    def last_words(self, num_lines: int = 8) -> str:
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return "\n".join(f"    {line}" for line in lines[-num_lines:])


def url_of(sock: socket.socket) -> str:
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


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


def is_ready(client: httpx.Client, url: str) -> bool:
    try:
        return client.get(f"{url}/health/ready", timeout=1.0).status_code == 200
    except httpx.HTTPError:
        return False


def stop(
    children: Sequence[Child],
    *,
    drain_s: float = 0.0,
    hurried: Callable[[], bool] = lambda: False,
) -> None:
    """Ask all to stop, in the given order; after the grace nobody is left.

    The first has `drain_s` to itself, unless somebody is in a hurry: the others serve it. Killing
    the whole session at the end also ends ranks and parsers that outlived their parent.
    """
    started = [child.process for child in children if child.process is not None]
    for place, process in enumerate(started):
        process.send_signal(signal.SIGTERM)  # nothing happens to one that has ended
        if place == 0:
            await_end(process, drain_s, hurried)
    deadline = time.monotonic() + STOP_GRACE_S
    for process in started:
        with suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, deadline - time.monotonic()))
        kill_session(process.pid)
        process.wait()


def await_end(
    process: "subprocess.Popen[bytes]", limit_s: float, hurried: Callable[[], bool]
) -> None:
    deadline = time.monotonic() + limit_s
    while process.poll() is None and time.monotonic() < deadline and not hurried():
        time.sleep(0.05)


def kill_session(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
