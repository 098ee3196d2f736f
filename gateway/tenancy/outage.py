"""What happens while the shared counter is away: refuse, or let every gateway count alone.

Knows no Redis. An outage and its end are each said once in the log.
"""

import logging
from collections.abc import Sequence

from gateway.tenancy.api import Claim, Limits, LimitsDown, Standing, Used

logger = logging.getLogger(__name__)


class FailOpen:
    """`shared` while it answers; while it does not, `own`, which only this gateway counts in."""

    def __init__(self, shared: Limits, own: Limits) -> None:
        self._shared = shared
        self._own = own
        self._own_ids: set[str] = set()
        self._is_down = False

    async def claim(self, claim: Claim) -> Standing:
        try:
            standing = await self._shared.claim(claim)
        except LimitsDown as error:
            self._say(is_down=True, cause=str(error))
            standing = await self._own.claim(claim)
            if claim.lease_s:
                self._own_ids.add(claim.id)
            return standing
        self._say(is_down=False)
        return standing

    async def seed(self, key_id: str, month: str, micros: int) -> None:
        await self._own.seed(key_id, month, micros)
        try:
            await self._shared.seed(key_id, month, micros)
        except LimitsDown as error:
            self._say(is_down=True, cause=str(error))

    async def settle(self, claim: Claim, used: Used) -> Standing:
        if claim.id in self._own_ids:
            self._own_ids.discard(claim.id)
            return await self._own.settle(claim, used)
        return await self._shared.settle(claim, used)

    async def renew(self, claims: Sequence[Claim]) -> None:
        await self._own.renew([one for one in claims if one.id in self._own_ids])
        await self._shared.renew([one for one in claims if one.id not in self._own_ids])

    async def aclose(self) -> None:
        await self._shared.aclose()
        await self._own.aclose()

    def _say(self, *, is_down: bool, cause: str = "") -> None:
        if is_down and not self._is_down:
            logger.warning("shared limits are away: counting alone", extra={"cause": cause})
        if self._is_down and not is_down:
            logger.warning("shared limits are back")
        self._is_down = is_down


class FailClosed:
    """`shared` only: while it does not answer, limited keys are refused."""

    def __init__(self, shared: Limits) -> None:
        self._shared = shared
        self._is_down = False

    async def claim(self, claim: Claim) -> Standing:
        try:
            standing = await self._shared.claim(claim)
        except LimitsDown as error:
            if not self._is_down:
                logger.warning("shared limits are away: refusing", extra={"cause": str(error)})
            self._is_down = True
            raise
        if self._is_down:
            logger.warning("shared limits are back")
        self._is_down = False
        return standing

    async def seed(self, key_id: str, month: str, micros: int) -> None:
        await self._shared.seed(key_id, month, micros)

    async def settle(self, claim: Claim, used: Used) -> Standing:
        return await self._shared.settle(claim, used)

    async def renew(self, claims: Sequence[Claim]) -> None:
        await self._shared.renew(claims)

    async def aclose(self) -> None:
        await self._shared.aclose()
