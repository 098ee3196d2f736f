"""Runs an engine over scripted ranks as a process of its own, for tests that end it.

Argument: a folder. Prints its port and the pids of the forker and the ranks once they are ready.
"""

import asyncio
import os
import socket
import sys
from pathlib import Path

from engines.gang.supervisor import Supervisor
from engines.wiring import run_engine
from gateway.cli import lifeline
from gateway.cli.hosting import Hosting
from tests.engines.gang.scripted_gang import rank_pids, scripted_supervisor


async def tell_when_ready(supervisor: Supervisor, port: int) -> None:
    await supervisor.wait_ready()
    sys.stdout.write(" ".join(map(str, [port, *rank_pids(os.getpid())])) + "\n")
    sys.stdout.flush()


async def main(folder: Path) -> None:
    supervisor = scripted_supervisor(folder)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(tell_when_ready(supervisor, listener.getsockname()[1]))
            await run_engine(supervisor, Hosting(listener=listener, drain_s=1))


if __name__ == "__main__":
    lifeline.hold()
    asyncio.run(main(Path(sys.argv[1])))
