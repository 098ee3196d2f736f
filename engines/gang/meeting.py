"""Where ranks find each other to form a process group; knows addresses, forms no group itself."""

import ipaddress
import socket
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory


class LocalMeetings:
    """Places for ranks that share a host with their supervisor: files in a folder of its own, so
    that no port is listened on and none can be taken by somebody else."""

    def __init__(self) -> None:
        self._folder: TemporaryDirectory[str] | None = None
        self._numbers = count(1)

    def next_place(self) -> str:
        """An init_method that has not been used before."""
        if self._folder is None:
            self._folder = TemporaryDirectory(prefix="ringway-meeting-")
        return f"file://{Path(self._folder.name) / str(next(self._numbers))}"

    def close(self) -> None:
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None


def offer(host: str) -> str:
    """A place on this host, named as the others know it; none for a host without a name.

    The port was free a moment ago; when it is lost meanwhile, the gang starts again.
    """
    if not host:
        return ""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return f"tcp://{host}:{probe.getsockname()[1]}"


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a listener on `host`; False for names but localhost."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
