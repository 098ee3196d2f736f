"""The policy in force, and how it is changed while requests run. Knows no HTTP.

Whoever spoke last is right: a change through the API holds over a restart until the file says
something that it did not say before.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from gateway.admin.history import Cause, Change, History, HistoryTaken, MemoryHistory
from gateway.api import GatewayError
from gateway.policy import Policy
from ingest.api import TransientError

logger = logging.getLogger(__name__)

LOOK_EVERY_S = 1.0
KEPT = 1000
"""How far back a version can be found."""


class VersionMismatch(GatewayError):
    """The policy is not the one that the caller meant to change."""

    def __init__(self, *, version: str) -> None:
        super().__init__(
            f"The policy in force is version {version}: read it, and send your change again with "
            f'If-Match: "{version}".'
        )
        self.version = version


class PreconditionRequired(GatewayError):
    def __init__(self, version: str) -> None:
        super().__init__(
            "A change must say what it changes: send If-Match with the ETag that GET "
            f'/admin/routing gave, now "{version}".'
        )


class VersionUnknown(GatewayError):
    def __init__(self, version: str) -> None:
        super().__init__(f"No policy of version '{version}' was ever in force here.")
        self.version = version


class PolicyBoard:
    """Reading `current` costs nothing. `load` reads the file anew; `clock` is Unix seconds."""

    def __init__(
        self,
        policy: Policy,
        *,
        clock: Callable[[], float],
        history: History | None = None,
        load: Callable[[], Policy] | None = None,
    ) -> None:
        self.current = policy
        self._clock = clock
        self._history = history or MemoryHistory()
        self._load = load or (lambda: policy)
        self._seq = 0
        self._lock = asyncio.Lock()

    async def open(self, *, who: str = "start") -> None:
        """Take up what the history says, or say there what the file says, whichever is newer."""
        async with self._lock:
            await self._hear_file(self.current, who)

    async def replace(
        self, policy: Policy, *, expected: str, who: str, cause: Cause = Cause.PUT
    ) -> Change:
        """Put `policy` in force for requests that begin from now on. Raises VersionMismatch."""
        async with self._lock:
            await self._look()
            if self.current.version != expected:
                raise VersionMismatch(version=self.current.version)
            if self._seq == 0:
                await self._append(self.current, who="start", cause=Cause.FILE, is_first=True)
            try:
                return await self._append(policy, who=who, cause=cause)
            except HistoryTaken:
                await self._look()
                raise VersionMismatch(version=self.current.version) from None

    async def rollback(self, version: str | None, *, expected: str | None, who: str) -> Change:
        """Back to a version that was in force before; None: to the one before this.

        Raises VersionUnknown and VersionMismatch.
        """
        await self.refresh()
        current = self.current.version
        changes = await self._history.latest(KEPT)
        wanted = version or next((one.version for one in changes if one.version != current), None)
        found = next((one.policy for one in changes if one.version == wanted), None)
        if found is None:
            raise VersionUnknown(version or "the one before")
        return await self.replace(
            found, expected=expected or current, who=who, cause=Cause.ROLLBACK
        )

    async def changes(self, limit: int) -> Sequence[Change]:
        return await self._history.latest(min(limit, KEPT))

    async def version(self, version: str) -> Change:
        """Raises VersionUnknown."""
        for change in await self._history.latest(KEPT):
            if change.version == version:
                return change
        raise VersionUnknown(version)

    async def reload(self, *, who: str = "sighup") -> None:
        """Read the file again. A bad file is logged, and nothing changes."""
        try:
            policy = await asyncio.to_thread(self._load)
            async with self._lock:
                await self._hear_file(policy, who)
        except (ValueError, TransientError) as error:
            logger.warning("policy not reloaded", extra={"cause": str(error)})

    async def refresh(self) -> None:
        """Take up what another gateway on the same database changed."""
        async with self._lock:
            await self._look()

    async def keep_fresh(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            try:
                await self.refresh()
            except (ValueError, TransientError) as error:
                logger.warning("policy not refreshed", extra={"cause": str(error)})

    async def _look(self) -> None:
        if await self._history.newest_seq() == self._seq:
            return
        newest = (await self._history.latest(1))[0]
        self._seq = newest.seq
        self._enforce(newest)

    async def _hear_file(self, policy: Policy, who: str) -> None:
        """The file counts when it says something else than it said last."""
        changes = await self._history.latest(KEPT)
        said = next((one.version for one in changes if one.cause is Cause.FILE), None)
        self._seq = changes[0].seq if changes else 0
        if said == policy.version and changes:
            self._enforce(changes[0])
            return
        if changes:
            self.current = changes[0].policy
        try:
            await self._append(policy, who=who, cause=Cause.FILE, is_first=not changes)
        except HistoryTaken:
            await self._look()

    async def _append(
        self, policy: Policy, *, who: str, cause: Cause, is_first: bool = False
    ) -> Change:
        change = Change(
            seq=self._seq + 1,
            policy=policy,
            old_version=None if is_first else self.current.version,
            cause=cause,
            who=who,
            changed_at=self._clock(),
        )
        await self._history.append(change)
        self._seq = change.seq
        self._enforce(change)
        return change

    def _enforce(self, change: Change) -> None:
        if change.version != self.current.version:
            logger.info(
                "policy changed",
                extra={
                    "version": change.version,
                    "old_version": self.current.version,
                    "who": change.who,
                    "cause": change.cause.value,
                },
            )
        self.current = change.policy
