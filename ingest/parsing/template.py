"""The process that every parser is forked from: it has the parsers imported and reads no file.

Started as `python -m ingest.parsing.template CONTROL_FD MODULE`. For each request it forks a
supervisor, which forks the parser and kills it when its time is up or nobody waits any more.
What travels on the job's socket: the parser's reply, then the supervisor's trailer, then the end.
"""

import ctypes
import gc
import os
import resource
import select
import signal
import socket
import struct
import sys
import traceback
from collections.abc import Callable
from enum import IntEnum
from importlib import import_module
from pathlib import Path

from ingest.api import PermanentError, UnsupportedFile
from ingest.parsing.parsed import (
    Parsed,
    ParseLimits,
    ParseRequest,
    Refused,
    decode_request,
    encode,
)

REQUEST_BYTES = 1 << 16
PR_SET_PDEATHSIG = 1
TRAILER = struct.Struct("!BI")
LIBC = ctypes.CDLL(None, use_errno=True)

Read = Callable[[Path, str, ParseLimits], Parsed]


class End(IntEnum):
    """How a parser ended; the trailer's number is the exit code or the signal."""

    EXITED = 1
    SIGNALLED = 2
    TIMED_OUT = 3


def main(control: socket.socket, read: Read) -> None:
    """Serve requests until the other end of `control` closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    # A collection in a fork would write to, and so copy, every page that holds an object.
    gc.collect()
    gc.freeze()
    while True:
        body, fds, _, _ = socket.recv_fds(control, REQUEST_BYTES, 1)
        if not body:
            return
        with socket.socket(fileno=fds[0]) as job:
            if os.fork() == 0:
                control.close()
                supervise(decode_request(body), job, read)
                os._exit(0)


def supervise(request: ParseRequest, job: socket.socket, read: Read) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    supervisor = os.getpid()
    parser = os.fork()
    if parser == 0:
        _parse_and_exit(request, job, read, supervisor)
    pidfd = os.pidfd_open(parser)
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    poll.register(job, select.POLLIN)
    ready = {fd for fd, _ in poll.poll(request.limits.wall_s * 1000)}
    if pidfd not in ready:
        os.kill(parser, signal.SIGKILL)
    _, status = os.waitpid(parser, 0)
    if not ready:
        end, number = End.TIMED_OUT, 0
    elif os.WIFSIGNALED(status):
        end, number = End.SIGNALLED, os.WTERMSIG(status)
    else:
        end, number = End.EXITED, os.WEXITSTATUS(status)
    try:
        job.sendall(TRAILER.pack(end, number))
    except OSError:
        return


def _parse_and_exit(request: ParseRequest, job: socket.socket, read: Read, supervisor: int) -> None:
    code = 1
    try:
        _die_with_the_supervisor(supervisor)
        _confine(request.limits)
        job.sendall(encode(_reply(request, read)))
        code = 0
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        os._exit(code)


def _reply(request: ParseRequest, read: Read) -> Parsed | Refused:
    try:
        return read(Path(request.path), request.filename, request.limits)
    except PermanentError as error:
        return Refused(cause=str(error), unsupported=isinstance(error, UnsupportedFile))
    except MemoryError:
        mebibytes = request.limits.memory_bytes >> 20
        return Refused(cause=f"Reading the file needs more than {mebibytes} MiB of memory.")


def _die_with_the_supervisor(supervisor: int) -> None:
    """Nobody else watches the clock."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != supervisor:
        os._exit(1)


def _confine(limits: ParseLimits) -> None:
    for kind, value in (
        (resource.RLIMIT_AS, limits.memory_bytes),
        (resource.RLIMIT_CPU, limits.cpu_s),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
    ):
        _, hard = resource.getrlimit(kind)
        ceiling = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (ceiling, ceiling))


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])), import_module(sys.argv[2]).read)
