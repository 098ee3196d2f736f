"""Answered responses that are kept for later turns: the `ResponseStore`, and one in memory.

Knows whose they are and how they follow each other; not what is in them.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from gateway.api import GatewayError


class ResponseMissing(GatewayError):
    """It never was, is deleted or expired, or is another tenant's."""

    def __init__(self, response_id: str) -> None:
        super().__init__(f"Response with id '{response_id}' not found.")
        self.response_id = response_id


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptResponse:
    """`body` is the response object and `input_items` the list of what this request added, both
    as JSON. Times are Unix seconds; without `expires_at` it is kept until it is deleted."""

    id: str
    tenant: str
    created_at: int
    input_items: bytes
    body: bytes
    previous_id: str | None = None
    expires_at: int | None = None


class ResponseStore(Protocol):
    """Safe for concurrent use. All raise TransientError while a database does not answer."""

    async def put(self, kept: KeptResponse) -> None: ...

    async def get(self, response_id: str, *, tenant: str) -> KeptResponse:
        """Raises ResponseMissing."""
        ...

    async def chain(self, response_id: str, *, tenant: str) -> Sequence[KeptResponse]:
        """The response and all that it follows, oldest first. Raises ResponseMissing for the first
        link that is not there: a conversation with a hole is none."""
        ...

    async def delete(self, response_id: str, *, tenant: str) -> None:
        """Raises ResponseMissing."""
        ...


class MemoryResponses:
    """A `ResponseStore` that ends with its process."""

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._kept: dict[str, KeptResponse] = {}

    async def put(self, kept: KeptResponse) -> None:
        now = self._clock()
        gone = [one.id for one in self._kept.values() if not _lives(one, now)]
        for response_id in gone:
            del self._kept[response_id]
        self._kept[kept.id] = kept

    async def get(self, response_id: str, *, tenant: str) -> KeptResponse:
        kept = self._kept.get(response_id)
        if kept is None or kept.tenant != tenant or not _lives(kept, self._clock()):
            raise ResponseMissing(response_id)
        return kept

    async def chain(self, response_id: str, *, tenant: str) -> Sequence[KeptResponse]:
        links: list[KeptResponse] = []
        link: str | None = response_id
        while link is not None:
            links.append(await self.get(link, tenant=tenant))
            link = links[-1].previous_id
        return links[::-1]

    async def delete(self, response_id: str, *, tenant: str) -> None:
        await self.get(response_id, tenant=tenant)
        del self._kept[response_id]


def _lives(kept: KeptResponse, now: float) -> bool:
    return kept.expires_at is None or kept.expires_at > now
