"""Where objects are read from: a Protocol, what it shows and what it refuses. Knows no S3."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """An object as it is now."""

    num_bytes: int
    etag: str | None
    version_id: str | None


class ObjectChanged(Exception):
    """The object is no longer the one that was seen; look again."""


class ObjectSource(Protocol):
    """Both methods raise TransientError, and PermanentError for what no retry can read."""

    async def look(self, bucket: str, key: str) -> Seen | None:
        """What the key holds at this moment; None: nothing. Reads none of its bytes."""
        ...

    def read(self, bucket: str, key: str, seen: Seen) -> AsyncIterator[bytes]:
        """The bytes of exactly what was seen. Raises ObjectChanged on first use."""
        ...
