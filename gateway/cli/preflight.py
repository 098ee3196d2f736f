"""What must be true before anything is started; every failure is one sentence."""

import errno
import fcntl
import os
import socket
from pathlib import Path
from typing import IO

from gateway.cli.main import Refusal
from gateway.cli.processes import listen


def make_data_dir(data_dir: Path) -> None:
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Refusal(f"cannot use {data_dir} as the data folder: {error.strerror}") from error


def sentence(error: Exception) -> str:
    """What a file said to somebody who did not open it themselves."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"cannot use {error.filename}: {error.strerror}"
    return str(error)


def lock_data_dir(data_dir: Path) -> IO[str]:
    """Take the folder for this process. The lock is the kernel's: it cannot go stale."""
    make_data_dir(data_dir)
    try:
        lock = (data_dir / "lock").open("a+")
    except OSError as error:
        raise Refusal(f"cannot use {data_dir} as the data folder: {error.strerror}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.seek(0)
        holder = lock.read().strip() or "unknown"
        lock.close()
        raise Refusal(
            f"{data_dir} is in use by another ringway (process {holder}); "
            "stop that one, or give another --data-dir"
        ) from None
    lock.seek(0)
    lock.truncate()
    lock.write(str(os.getpid()))
    lock.flush()
    return lock


def listen_or_refuse(host: str, port: int) -> socket.socket:
    try:
        return listen(host, port)
    except OverflowError:
        raise Refusal(f"{port} is not a port (0 to 65535)") from None
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise Refusal(f"port {port} on {host} is taken; choose another with --port") from error
        raise Refusal(f"cannot listen on {host}:{port}: {error.strerror}") from error
