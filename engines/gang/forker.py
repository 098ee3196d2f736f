"""A process that imports the heavy modules once and forks ranks from itself; knows no messages.

It reads one JSON line per command from stdin and writes one per event to stdout. It is single
threaded, so forking is safe. End of input, or the death of its parent, ends it, and its death
ends its children: the kernel does that, so that a stopped rank dies as well.
"""

import ctypes
import gc
import importlib
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import msgspec

from engines.gang.order import RankOrder, decode_order

PR_SET_PDEATHSIG = 1

RankMain = Callable[[RankOrder], None]


class Fork(msgspec.Struct, frozen=True, tag=True):
    """Start one rank; `order` is a RankOrder."""

    order: msgspec.Raw


class KillAll(msgspec.Struct, frozen=True, tag=True):
    """Kill every rank and answer AllGone with the same number."""

    number: int


class Forked(msgspec.Struct, frozen=True, tag=True):
    rank: int
    pid: int


class Exited(msgspec.Struct, frozen=True, tag=True):
    """`code` is an exit status, or minus the number of the signal that killed the rank."""

    pid: int
    code: int


class AllGone(msgspec.Struct, frozen=True, tag=True):
    number: int


Command = Fork | KillAll
Notice = Forked | Exited | AllGone

_commands = msgspec.json.Decoder(Command)
_notices = msgspec.json.Decoder(Notice)


def decode_command(line: bytes) -> Command:
    return _commands.decode(line)


def decode_notice(line: bytes) -> Notice:
    return _notices.decode(line)


def encode_line(message: Command | Notice) -> bytes:
    return msgspec.json.encode(message) + b"\n"


class Forker:
    """The children of this process and their ends."""

    def __init__(self, rank_main: RankMain) -> None:
        self._rank_main = rank_main
        self._children: set[int] = set()

    def serve(self) -> None:
        """Obey commands until the input ends; then take the children along."""
        signal.signal(signal.SIGCHLD, self._reap)
        for line in sys.stdin.buffer:
            match decode_command(line):
                case Fork(order=order):
                    self._fork(decode_order(bytes(order)))
                case KillAll(number=number):
                    self._kill_all()
                    _notify(AllGone(number))
        self._kill_all()

    def _fork(self, order: RankOrder) -> None:
        with _reaping_later():
            parent = os.getpid()
            pid = os.fork()
            if pid == 0:
                _become_rank(self._rank_main, order, parent)
            self._children.add(pid)
            _notify(Forked(order.rank, pid))

    def _kill_all(self) -> None:
        with _reaping_later():
            for pid in self._children:
                os.kill(pid, signal.SIGKILL)
            for pid in sorted(self._children):
                self._bury(pid, os.waitpid(pid, 0)[1])

    def _reap(self, *_: object) -> None:
        for pid in list(self._children):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                self._bury(pid, status)

    def _bury(self, pid: int, status: int) -> None:
        self._children.discard(pid)
        _notify(Exited(pid, os.waitstatus_to_exitcode(status)))


@contextmanager
def _reaping_later() -> Iterator[None]:
    """No child is reaped inside, so that every pid in the set is still ours."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])


def die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent ends (Linux; elsewhere sockets tell)."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)


def _become_rank(rank_main: RankMain, order: RankOrder, parent: int) -> NoReturn:
    """Never returns: a forked child must not fall back into the forker's loop."""
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
        die_with(parent)
        _redirect(order.log)
        rank_main(order)
        code = 0
    except Exception:  # noqa: BLE001 - the edge of the process: nobody above could report it
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _redirect(log: Path | None) -> None:
    """Input from nowhere, output to the log: the forker's pipes are not the child's."""
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    if log is not None:
        target = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.dup2(target, 2)
    os.dup2(2, 1)


def _notify(notice: Notice) -> None:
    """One write per line, so that a line from the signal handler never lands inside another."""
    os.write(1, encode_line(notice))


def _resolve(path: str) -> RankMain:
    module, _, name = path.partition(":")
    found = getattr(importlib.import_module(module), name)
    assert callable(found)
    return found  # type: ignore[no-any-return]


def main(arguments: list[str]) -> None:
    """Arguments: the parent's pid, `module:function` of the rank, then modules to import."""
    parent, rank_main, *preload = arguments
    die_with(int(parent))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resolved = _resolve(rank_main)
    for name in preload:
        importlib.import_module(name)
    # What was imported is never garbage: a collection in a rank would copy every page of it.
    gc.collect()
    gc.freeze()
    Forker(resolved).serve()


if __name__ == "__main__":
    main(sys.argv[1:])
