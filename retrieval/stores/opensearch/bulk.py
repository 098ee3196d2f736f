"""Bulk requests of bounded size: items that met a busy node are sent again, others are not.

An item whose answer got lost may have been applied all the same, so whoever writes through here
must survive a second application.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

import msgspec

from retrieval.api import SearchUnavailable, WriteRejected
from retrieval.stores.opensearch.cluster import Cluster, RequestFailed, reason_of
from retrieval.stores.opensearch.documents import Json

logger = logging.getLogger(__name__)

BUSY = frozenset({429, 503})
_UNHEARD = frozenset({None, 408, 429, 502, 503, 504})
"""Answers to a whole request that say nothing of its items."""

_BASE_DELAY_S = 0.2
_MAX_DELAY_S = 5.0
_TOO_LARGE = 413


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """`lines` is its part of the request's body; `chunk_id` names it in a refusal."""

    chunk_id: str
    lines: bytes


def index_action(document: Json, *, id_: str | None) -> Action:
    head: Json = {"index": {"_id": id_} if id_ is not None else {}}
    encoded = msgspec.json.encode(head) + b"\n" + msgspec.json.encode(document) + b"\n"
    return Action(chunk_id=str(document["chunk_id"]), lines=encoded)


def delete_action(id_: str) -> Action:
    return Action(chunk_id=id_, lines=msgspec.json.encode({"delete": {"_id": id_}}) + b"\n")


class BulkSender:
    def __init__(
        self,
        cluster: Cluster,
        *,
        max_bytes: int,
        max_attempts: int,
        rng: Random,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._cluster = cluster
        self._max_bytes = max_bytes
        self._max_attempts = max_attempts
        self._rng = rng
        self._sleep = sleep

    async def send(self, index: str, actions: Sequence[Action]) -> None:
        """All items are applied when it returns. Raises SearchUnavailable or WriteRejected."""
        for batch in batches(actions, self._max_bytes):
            await self._send_batch(index, batch)

    async def _send_batch(self, index: str, batch: Sequence[Action]) -> None:
        waiting, cause = list(batch), ""
        for attempt in range(self._max_attempts):
            if attempt:
                await self._sleep(self._delay_s(attempt))
            try:
                items = await self._cluster.bulk(index, b"".join(each.lines for each in waiting))
            except RequestFailed as failure:
                if failure.status == _TOO_LARGE:
                    return await self._halve(index, waiting, failure)
                if failure.status not in _UNHEARD:
                    raise
                cause = str(failure)
                continue
            waiting, cause = _left_over(waiting, items)
            if not waiting:
                return None
            logger.info("bulk items again", extra={"items": len(waiting), "attempt": attempt + 1})
        raise SearchUnavailable(
            f"OpenSearch did not take {len(waiting)} of {len(batch)} items"
            f" in {self._max_attempts} attempts: {cause}"
        )

    async def _halve(self, index: str, batch: list[Action], failure: RequestFailed) -> None:
        if len(batch) == 1:
            raise WriteRejected(chunk_id=batch[0].chunk_id, reason=str(failure)) from failure
        middle = len(batch) // 2
        await self._send_batch(index, batch[:middle])
        await self._send_batch(index, batch[middle:])

    def _delay_s(self, attempt: int) -> float:
        """Full jitter."""
        return self._rng.uniform(0, min(_MAX_DELAY_S, _BASE_DELAY_S * 2**attempt))


def batches(actions: Sequence[Action], max_bytes: int) -> Iterator[list[Action]]:
    """In order, each at most `max_bytes` but for a single larger item."""
    batch: list[Action] = []
    num_bytes = 0
    for action in actions:
        if batch and num_bytes + len(action.lines) > max_bytes:
            yield batch
            batch, num_bytes = [], 0
        batch.append(action)
        num_bytes += len(action.lines)
    if batch:
        yield batch


def _left_over(sent: Sequence[Action], items: Sequence[Json]) -> tuple[list[Action], str]:
    """The items to send again and one's reason. Raises for those that will never be taken."""
    if len(items) != len(sent):
        raise SearchUnavailable(f"OpenSearch answers {len(items)} items for {len(sent)}")
    again: list[Action] = []
    refused: Exception | None = None
    cause = ""
    for action, item in zip(sent, items, strict=True):
        [(name, outcome)] = item.items()
        assert isinstance(outcome, dict), "an item's outcome is an object"
        status = int(outcome.get("status", 0))
        if status < 300 or (name == "delete" and status == 404 and "error" not in outcome):
            continue
        reason = reason_of(outcome.get("error", outcome))
        if status in BUSY:
            again.append(action)
            cause = reason
        elif refused is None:
            refused = _refusal(action.chunk_id, status, reason)
    if refused is not None:
        raise refused
    return again, cause


def _refusal(chunk_id: str, status: int, reason: str) -> Exception:
    if status == 400:
        return WriteRejected(chunk_id=chunk_id, reason=reason)
    return SearchUnavailable(f"OpenSearch answers {status} for chunk {chunk_id}: {reason}")
