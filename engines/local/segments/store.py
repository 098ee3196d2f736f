"""Keeps segments of one rank in memory and on disk, within budgets; knows no keys and no models.

Both tiers are folders: the first on a file system in memory, the second on local disk. What lies
in them outlives the rank, and a reader maps it, so it is nobody's anonymous memory.
"""

import logging
import mmap
import shutil
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor

from engines.local.segments.int8 import Int8Keys
from engines.local.segments.segment import SegmentName, pack_segment, unpack_segment

logger = logging.getLogger(__name__)

SUFFIX = ".kv"


@dataclass(slots=True)
class Tier:
    """A folder and how much may lie in it."""

    folder: Path
    budget_bytes: int
    used_bytes: int = 0
    shelves: dict[str, int] = field(default_factory=dict)

    def has_room(self, num_bytes: int) -> bool:
        return self.used_bytes + num_bytes <= self.budget_bytes

    def add(self, shelf: str, num_bytes: int) -> None:
        self.used_bytes += num_bytes
        self.shelves[shelf] = self.shelves.get(shelf, 0) + num_bytes

    def drop(self, shelf: str) -> None:
        self.used_bytes -= self.shelves.pop(shelf, 0)
        shutil.rmtree(self.folder / shelf, ignore_errors=True)


class SegmentStore:
    """Segments on shelves; the shelf that was used longest ago goes first, as a whole.

    A shelf is what one question needs all of: of a document that was thrown away in part, a scan
    would throw away the rest. What does not fit beside its own shelf is not kept.
    """

    def __init__(self, tiers: Sequence[Tier]) -> None:
        self._tiers = tiers
        self._last_used: OrderedDict[str, None] = OrderedDict()

    @classmethod
    def open(cls, tiers: Sequence[Tier]) -> "SegmentStore":
        """With what an earlier process of this rank has left. Raises OSError."""
        store = cls(tiers)
        found: list[tuple[float, str]] = []
        for tier in tiers:
            tier.folder.mkdir(parents=True, exist_ok=True)
            for shelf in tier.folder.iterdir():
                tier.add(shelf.name, sum(file.stat().st_size for file in shelf.iterdir()))
                found.append((shelf.stat().st_mtime, shelf.name))
        store._last_used.update((name, None) for _, name in sorted(found))
        return store

    @property
    def used_bytes(self) -> int:
        return sum(tier.used_bytes for tier in self._tiers)

    def get(self, name: SegmentName, ids_T: Tensor) -> Int8Keys | None:
        """The keys of exactly these ids under exactly this name, mapped from their file."""
        for tier in self._tiers:
            path = self._path(tier, name)
            mapped = _mapped(path)
            if mapped is None:
                continue
            keys = unpack_segment(mapped, name, ids_T)
            if keys is not None:
                self._touch(name.shelf)
                return keys
            logger.warning("segment is damaged", extra={"segment": name.name})
            path.unlink(missing_ok=True)
        return None

    def put(self, name: SegmentName, ids_T: Tensor, keys: Int8Keys) -> bool:
        """True if it is kept. A full disk is no error: then it is not."""
        packed = pack_segment(name, ids_T, keys)
        self._touch(name.shelf)
        while True:
            for tier in self._tiers:
                if tier.has_room(len(packed)) and self._write(tier, name, packed):
                    return True
            if not self._drop_oldest(but=name.shelf):
                return False

    def drop(self, shelf: str) -> None:
        """Throw a shelf away; mapped segments stay readable. Unknown shelves are ignored."""
        self._last_used.pop(shelf, None)
        for tier in self._tiers:
            tier.drop(shelf)

    def _drop_oldest(self, *, but: str) -> bool:
        oldest = next((shelf for shelf in self._last_used if shelf != but), None)
        if oldest is not None:
            self.drop(oldest)
        return oldest is not None

    def _touch(self, shelf: str) -> None:
        self._last_used[shelf] = None
        self._last_used.move_to_end(shelf)

    def _write(self, tier: Tier, name: SegmentName, packed: bytes) -> bool:
        path = self._path(tier, name)
        unfinished = path.with_suffix(".part")
        try:
            path.parent.mkdir(exist_ok=True)
            unfinished.write_bytes(packed)
            unfinished.rename(path)
        except OSError as error:
            logger.warning("segment not written", extra={"cause": str(error)})
            with suppress(OSError):
                unfinished.unlink(missing_ok=True)
            return False
        tier.add(name.shelf, len(packed))
        return True

    @staticmethod
    def _path(tier: Tier, name: SegmentName) -> Path:
        return tier.folder / name.shelf / (name.name + SUFFIX)


def _mapped(path: Path) -> mmap.mmap | None:
    try:
        with path.open("rb") as file:
            # Private, so that torch may have a writable view of a file that nobody writes.
            return mmap.mmap(
                file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE
            )
    except (OSError, ValueError):
        return None
