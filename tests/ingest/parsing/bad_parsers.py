"""Parsers that misbehave, one for each file name; run in the sandbox by its tests only."""

import ctypes
import os
import signal
import stat
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from ingest.api import PermanentError
from ingest.parsing.parsed import Parsed, ParseLimits


def read(path: Path, filename: str, limits: ParseLimits) -> Parsed:
    behaviour = BEHAVIOURS.get(filename)
    if behaviour is not None:
        behaviour()
    return Parsed(text=path.read_text())


def memory() -> None:
    hoard = []
    while True:
        hoard.append(bytearray(16 << 20))


def loop() -> None:
    while True:
        pass


def sleep() -> None:
    time.sleep(3600)


def garbage() -> None:
    os.write(job_socket(), b"\x00not a reply")
    os._exit(0)


def partial() -> None:
    os.write(job_socket(), b"half of")
    os.kill(os.getpid(), signal.SIGKILL)


def segfault() -> None:
    ctypes.string_at(0)


def error() -> None:
    raise RuntimeError("a bug in a parser")


def write() -> None:
    with tempfile.TemporaryFile() as file:
        file.write(b"x")


def refuse() -> None:
    raise PermanentError("The file is refused.")


def flood() -> None:
    descriptor, block = job_socket(), b"x" * 65536
    while True:
        os.write(descriptor, block)


def job_socket() -> int:
    """The only socket that this process has."""
    return next(fd for fd in range(3, 64) if _is_socket(fd))


def _is_socket(fd: int) -> bool:
    try:
        return stat.S_ISSOCK(os.fstat(fd).st_mode)
    except OSError:
        return False


BEHAVIOURS: Mapping[str, Callable[[], None]] = {
    "memory": memory,
    "loop": loop,
    "sleep": sleep,
    "flood": flood,
    "garbage": garbage,
    "partial": partial,
    "segfault": segfault,
    "error": error,
    "write": write,
    "refuse": refuse,
}
