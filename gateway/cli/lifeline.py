"""Ends a child process when its parent is gone; knows only a pipe.

The parent holds the writing end of the child's standard input and never writes. However the
parent dies, the kernel closes that end and the child reads the end of the file.
"""

import os
import signal
import threading

GRACE_S = 8.0


def hold(fd: int = 0) -> None:
    """Watch `fd` from a daemon thread; at its end ask for a clean stop, then insist."""
    threading.Thread(target=_watch, args=(fd,), name="lifeline", daemon=True).start()


def _watch(fd: int) -> None:
    while os.read(fd, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(GRACE_S)
    os._exit(1)
