"""What becomes of bulk items that OpenSearch was too busy for, refused, or never answered."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from random import Random

import pytest
from aiohttp import web

from retrieval.api import SearchUnavailable, WriteRejected
from retrieval.config import OpenSearchConfig
from retrieval.stores.opensearch.bulk import (
    Action,
    BulkSender,
    batches,
    delete_action,
    index_action,
)
from retrieval.stores.opensearch.cluster import Cluster
from tests.retrieval.stores.opensearch.scripted import Script, Sent, Server, scripted

BUSY = {"type": "opensearch_rejected_execution_exception", "reason": "queue is full"}
BAD = {"type": "mapper_parsing_exception", "reason": "failed to parse field [vector]"}


def action(name: str, num_chars: int = 1) -> Action:
    return index_action({"chunk_id": name, "text": "x" * num_chars}, id_=name)


def names(sent: Sent) -> list[str]:
    heads = [json.loads(line) for line in sent.body.splitlines()]
    return [head["index"]["_id"] for head in heads if "index" in head]


def items(sent: Sent, statuses: dict[str, int]) -> web.Response:
    """200 for every item but those named."""
    answer = []
    for name in names(sent):
        status = statuses.get(name, 201)
        error = {429: BUSY, 503: BUSY, 400: BAD}.get(status)
        outcome = {"_id": name, "status": status, **({"error": error} if error else {})}
        answer.append({"index": outcome})
    return web.json_response({"errors": bool(statuses), "items": answer})


@asynccontextmanager
async def sending(
    script: Script, *, max_bytes: int = 1 << 20, pauses: list[float] | None = None
) -> AsyncIterator[tuple[BulkSender, Server]]:
    kept = pauses if pauses is not None else []

    async def pause(seconds: float) -> None:
        kept.append(seconds)

    async with scripted(script) as server:
        cluster = Cluster.connect(OpenSearchConfig(url=server.url, timeout_s=0.5))
        try:
            yield (
                BulkSender(
                    cluster, max_bytes=max_bytes, max_attempts=4, rng=Random(1), sleep=pause
                ),
                server,
            )
        finally:
            await cluster.aclose()


@pytest.mark.parametrize("status", [429, 503])
async def test_only_items_that_met_a_busy_node_are_sent_again(status: int) -> None:
    def script(sent: Sent) -> web.Response:
        return items(sent, {"b": status, "c": status} if sent.number == 0 else {})

    pauses: list[float] = []
    async with sending(script, pauses=pauses) as (bulk, server):
        await bulk.send("index", [action(name) for name in "abcd"])
    assert [names(sent) for sent in server.sent] == [["a", "b", "c", "d"], ["b", "c"]]
    assert len(pauses) == 1


async def test_attempts_end_and_the_pauses_between_them_grow_with_jitter() -> None:
    pauses: list[float] = []
    async with sending(lambda sent: items(sent, {"a": 429}), pauses=pauses) as (bulk, server):
        with pytest.raises(SearchUnavailable, match=r"1 of 2 items in 4 attempts: .*queue is full"):
            await bulk.send("index", [action("a"), action("b")])
    assert len(server.sent) == 4
    assert all(0 <= pause <= 0.2 * 2**n for n, pause in enumerate(pauses, start=1))
    assert len(set(pauses)) == 3


async def test_a_refused_item_is_permanent_and_says_why() -> None:
    async with sending(lambda sent: items(sent, {"b": 400})) as (bulk, server):
        with pytest.raises(WriteRejected, match="failed to parse field") as refusal:
            await bulk.send("index", [action("a"), action("b")])
    assert refusal.value.chunk_id == "b"
    assert len(server.sent) == 1


async def test_an_item_of_a_closed_index_may_come_again_later() -> None:
    async with sending(lambda sent: items(sent, {"a": 403})) as (bulk, server):
        with pytest.raises(SearchUnavailable, match="answers 403 for chunk a"):
            await bulk.send("index", [action("a")])
    assert len(server.sent) == 1


@pytest.mark.parametrize("status", [429, 502, 503, 504])
async def test_a_request_without_an_answer_for_its_items_is_sent_again(status: int) -> None:
    def script(sent: Sent) -> web.Response:
        return web.Response(status=status) if sent.number < 2 else items(sent, {})

    async with sending(script) as (bulk, server):
        await bulk.send("index", [action("a")])
    assert [names(sent) for sent in server.sent] == [["a"]] * 3


async def test_a_refused_request_is_not_sent_again() -> None:
    answer = {"error": {"type": "security_exception", "reason": "no permissions"}, "status": 403}
    async with sending(lambda _: web.json_response(answer, status=403)) as (bulk, server):
        with pytest.raises(SearchUnavailable, match="403: security_exception: no permissions"):
            await bulk.send("index", [action("a")])
    assert len(server.sent) == 1


async def test_a_request_that_is_too_large_is_halved() -> None:
    def script(sent: Sent) -> web.Response:
        return web.Response(status=413) if len(names(sent)) > 1 else items(sent, {})

    async with sending(script) as (bulk, server):
        await bulk.send("index", [action(name) for name in "abc"])
    assert [names(sent) for sent in server.sent if len(names(sent)) == 1] == [["a"], ["b"], ["c"]]


async def test_an_item_that_is_too_large_alone_is_permanent() -> None:
    async with sending(lambda _: web.Response(status=413)) as (bulk, _):
        with pytest.raises(WriteRejected):
            await bulk.send("index", [action("a")])


async def test_deleting_what_is_gone_is_fine() -> None:
    def script(_: Sent) -> web.Response:
        gone = {"delete": {"_id": "a", "status": 404, "result": "not_found"}}
        return web.json_response({"errors": False, "items": [gone]})

    async with sending(script) as (bulk, server):
        await bulk.send("index", [delete_action("a")])
    assert len(server.sent) == 1


async def test_an_answer_of_other_items_is_not_believed() -> None:
    def script(_: Sent) -> web.Response:
        return web.json_response({"errors": False, "items": []})

    async with sending(script) as (bulk, _):
        with pytest.raises(SearchUnavailable, match="0 items for 1"):
            await bulk.send("index", [action("a")])


def test_batches_stay_below_the_limit_and_keep_the_order() -> None:
    actions = [action(str(n), num_chars) for n, num_chars in enumerate((10, 500, 10, 900, 10, 10))]
    found = list(batches(actions, 700))
    assert [one for batch in found for one in batch] == actions
    assert all(size(batch) <= 700 or len(batch) == 1 for batch in found)
    assert len(found) == 3


def size(batch: Sequence[Action]) -> int:
    return sum(len(one.lines) for one in batch)
