"""A `ringway up` of the demo's own, on a free port and a folder that goes away afterwards."""

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

READY = re.compile(r"is ready after .*?(http://\S+/v1)")


class NotStarted(Exception):
    """`ringway up` gave up; the message is what it said last."""


@contextmanager
def own_gateway(console: Console) -> Iterator[str]:
    """The base URL of a gateway that runs inside. Raises NotStarted."""
    with tempfile.TemporaryDirectory(prefix="ringway-demo-") as data_dir:
        command = ["up", "--port", "0", "--data-dir", data_dir, "--exit-with-parent"]
        with subprocess.Popen(
            [sys.executable, "-m", "gateway", *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            try:
                with console.status("no gateway is running here: starting one ..."):
                    url = _first_url(process)
                yield url
            finally:
                process.terminate()


def _first_url(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    last = ""
    for line in process.stdout:
        if found := READY.search(line):
            return found[1]
        last = line.strip() or last
    raise NotStarted(last)
