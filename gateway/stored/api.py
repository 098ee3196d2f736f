"""Chat completions that callers let us keep: the `ChatStore`, and one in memory.

Knows whose they are, their model and metadata; not what is in them.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from gateway.api import GatewayError
from ingest.stores_api import Page, PageRequest


class ChatMissing(GatewayError):
    """It never was or was not to be kept, is deleted or expired, or is another tenant's."""

    def __init__(self, completion_id: str) -> None:
        super().__init__(f"Chat completion with id '{completion_id}' not found.")
        self.completion_id = completion_id


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptChat:
    """`messages` are those that were asked with and `body` the answer, both as JSON. Times are
    Unix seconds; without `expires_at` it is kept until it is deleted."""

    id: str
    tenant: str
    model: str
    created_at: int
    messages: bytes
    body: bytes
    metadata: Mapping[str, str] = field(default_factory=dict)
    expires_at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatFilter:
    """Chats of the model, whose metadata has all of these pairs."""

    model: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)

    def takes(self, kept: KeptChat) -> bool:
        return self.model in (None, kept.model) and self.metadata.items() <= kept.metadata.items()


class ChatStore(Protocol):
    """Safe for concurrent use. All raise TransientError while a database does not answer."""

    async def put(self, kept: KeptChat) -> None: ...

    async def get(self, completion_id: str, *, tenant: str) -> KeptChat:
        """Raises ChatMissing."""
        ...

    async def page(self, wanted: ChatFilter, page: PageRequest, *, tenant: str) -> Page[KeptChat]:
        """By creation. Raises ChatMissing for a cursor that is not there."""
        ...

    async def update(
        self, completion_id: str, metadata: Mapping[str, str], *, tenant: str
    ) -> KeptChat:
        """With `metadata` instead of what it had. Raises ChatMissing."""
        ...

    async def delete(self, completion_id: str, *, tenant: str) -> None:
        """Raises ChatMissing."""
        ...


class MemoryChats:
    """A `ChatStore` that ends with its process."""

    def __init__(self, *, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._kept: dict[str, KeptChat] = {}

    async def put(self, kept: KeptChat) -> None:
        self._kept = {key: one for key, one in self._kept.items() if self._lives(one)}
        self._kept[kept.id] = kept

    async def get(self, completion_id: str, *, tenant: str) -> KeptChat:
        kept = self._kept.get(completion_id)
        if kept is None or kept.tenant != tenant or not self._lives(kept):
            raise ChatMissing(completion_id)
        return kept

    async def page(self, wanted: ChatFilter, page: PageRequest, *, tenant: str) -> Page[KeptChat]:
        theirs = [one for one in self._kept.values() if one.tenant == tenant and self._lives(one)]
        ordered = theirs if page.ascending else theirs[::-1]
        if page.after is not None:
            cursor = await self.get(page.after, tenant=tenant)
            ordered = ordered[ordered.index(cursor) + 1 :]
        found = [one for one in ordered if wanted.takes(one)]
        return Page(items=found[: page.limit], has_more=len(found) > page.limit)

    async def update(
        self, completion_id: str, metadata: Mapping[str, str], *, tenant: str
    ) -> KeptChat:
        kept = await self.get(completion_id, tenant=tenant)
        self._kept[completion_id] = replace(kept, metadata=dict(metadata))
        return self._kept[completion_id]

    async def delete(self, completion_id: str, *, tenant: str) -> None:
        await self.get(completion_id, tenant=tenant)
        del self._kept[completion_id]

    def _lives(self, kept: KeptChat) -> bool:
        return kept.expires_at is None or kept.expires_at > self._clock()
