"""The folders in which a gang's ranks keep finished chunks, for as long as their supervisor lives.

Knows where memory and disk are; does not know what lies in the folders.
"""

import fcntl
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from engines.config import SegmentsConfig

logger = logging.getLogger(__name__)

MEMORY = Path("/dev/shm")
PREFIX = "ringway-segments-"
LOCK = "lock"


@contextmanager
def segment_home(config: SegmentsConfig, memory: Path = MEMORY) -> Iterator[SegmentsConfig]:
    """The configuration with its folders made; they are gone afterwards, with all that is in them.

    Folders that were named by their owner are used as they are and stay. What a supervisor left
    that was killed is removed by the next.
    """
    made: list[Path] = []
    locks: list[int] = []
    try:
        folder = config.folder or _made_in(Path(tempfile.gettempdir()), made, locks)
        ram_folder = config.ram_folder
        if ram_folder is None and memory.is_dir():
            ram_folder = _made_in(memory, made, locks)
        ram_bytes = config.ram_bytes
        if ram_folder is not None:
            ram_bytes = min(ram_bytes, shutil.disk_usage(ram_folder).free // 2)
        yield replace(config, folder=folder, ram_folder=ram_folder, ram_bytes=ram_bytes)
    finally:
        for path in made:
            shutil.rmtree(path, ignore_errors=True)
        for lock in locks:
            os.close(lock)


def _made_in(parent: Path, made: list[Path], locks: list[int]) -> Path:
    """A folder of our own, locked while we live; others that nobody holds are removed."""
    for other in parent.glob(f"{PREFIX}*"):
        if _is_abandoned(other):
            logger.info("removing abandoned segments", extra={"folder": str(other)})
            shutil.rmtree(other, ignore_errors=True)
    path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
    made.append(path)
    lock = os.open(path / LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    locks.append(lock)
    fcntl.flock(lock, fcntl.LOCK_EX)
    return path


def _is_abandoned(path: Path) -> bool:
    """Not one that has no lock yet: it is being made."""
    with suppress(OSError):
        lock = os.open(path / LOCK, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        finally:
            os.close(lock)
    return False
