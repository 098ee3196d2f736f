import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from pydantic import SecretStr

from engines.fake import FakeSettings
from gateway.admin.board import PolicyBoard, VersionMismatch
from gateway.admin.history import Cause, Change, History, HistoryTaken, MemoryHistory, SqlHistory
from gateway.policy import AutoPolicy, Policy, load_policy
from gateway.tenancy.schema import metadata
from ingest.database import Database, sqlite_url
from tests.gateway import plain_http
from tests.gateway.fakes import BpeEngine, Running, Start, bpe_say, paragraphs

ROUTING = "/admin/routing"
NARROW = {"allow": ["hierarchical", "retrieval"]}
QUESTION = {"model": "fake", "messages": [{"role": "user", "content": "hi"}]}


def put(gateway: Running, policy: object, etag: str | None, **headers: str) -> httpx.Response:
    sent = dict(headers) if etag is None else {"if-match": etag, **headers}
    return plain_http.put(f"{gateway.url}{ROUTING}", json=policy, headers=sent)


def etag_of(gateway: Running) -> str:
    return plain_http.get(f"{gateway.url}{ROUTING}").headers["etag"]


def ask(gateway: Running, **more: object) -> httpx.Response:
    url = f"{gateway.url}/v1/chat/completions"
    return plain_http.post(url, json={**QUESTION, **more}, timeout=15)


def test_a_change_holds_from_the_next_request_on_and_can_be_taken_back(start: Start) -> None:
    gateway = start()
    first = etag_of(gateway)
    assert first == f'"{Policy().version}"'
    assert ask(gateway).headers["x-ringway-route"] == "full"
    changed = put(gateway, NARROW, first, **{"x-ringway-actor": "ann"})
    assert changed.status_code == 200
    answer = ask(gateway)
    assert answer.headers["x-ringway-route"] == "hierarchical"
    assert f'"{answer.headers["x-ringway-policy-version"]}"' == changed.headers["etag"]
    assert changed.headers["etag"] == etag_of(gateway) != first
    back = plain_http.post(f"{gateway.url}{ROUTING}/rollback")
    assert (back.status_code, back.headers["etag"]) == (200, first)
    assert ask(gateway).headers["x-ringway-route"] == "full"
    history = plain_http.get(f"{gateway.url}{ROUTING}/history").json()["data"]
    assert [one["cause"] for one in history] == ["rollback", "put", "file"]
    assert history[1]["who"] == "loopback/ann"
    assert [history[1]["old_version"], history[0]["old_version"]] == [
        first.strip('"'),
        changed.headers["etag"].strip('"'),
    ]
    kept = plain_http.get(f"{gateway.url}{ROUTING}/versions/{history[1]['version']}").json()
    assert kept["policy"]["allow"] == NARROW["allow"]


def test_routes_read_as_much_as_the_new_policy_says(start: Start) -> None:
    gateway = start()
    text = paragraphs(["The zebra lives in Lisbon."], 60) + "\n\nWhere does the zebra live?"
    asked = {"messages": [{"role": "user", "content": text}], "fidelity": "retrieval"}
    before = ask(gateway, **asked).json()["ringway"]["tokens_read"]
    less = {"retrieval": {"total_tokens": 40, "passage_tokens": 32, "top_k": 1}}
    assert put(gateway, less, etag_of(gateway)).status_code == 200
    assert ask(gateway, **asked).json()["ringway"]["tokens_read"] < before


def test_a_change_must_name_what_it_changes_and_be_a_policy(start: Start) -> None:
    gateway = start()
    etag = etag_of(gateway)
    for sent in (None, "*"):
        missing = put(gateway, NARROW, sent)
        assert (missing.status_code, missing.json()["error"]["code"]) == (
            428,
            "precondition_required",
        )
    stale = put(gateway, NARROW, '"000000000000"')
    assert (stale.status_code, stale.headers["etag"]) == (412, etag)
    for bad, word in (
        ({"autos": {}}, "unknown key 'autos'"),
        ({"prices": {"full": [{"inputs": 1}]}}, "unknown key 'prices.full[0].inputs'"),
        ({"prices": {"full": [{"up_to_tokens": 5}]}}, "only the last tier has none"),
        ({"tenancy": {"cached_token_weight": 2}}, "cached_token_weight"),
        ([], "must be a mapping"),
    ):
        refused = put(gateway, bad, etag)
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_policy")
        assert word in refused.json()["error"]["message"]
    assert etag_of(gateway) == etag
    unknown = plain_http.post(f"{gateway.url}{ROUTING}/rollback", json={"version": "feedfeedfeed"})
    assert unknown.status_code == 404
    no_yaml = plain_http.put(
        f"{gateway.url}{ROUTING}",
        content=b"auto: {full_max_tokens: 7}",
        headers={"if-match": etag, "content-type": "application/yaml"},
    )
    assert no_yaml.json()["policy"]["auto"]["full_max_tokens"] == 7


def test_a_running_request_keeps_the_policy_it_began_with(start: Start) -> None:
    engine = BpeEngine(bpe_say("word " * 30), FakeSettings(token_delay_s=0.03))
    gateway = start(engine)
    old = Policy().version
    url = f"{gateway.url}/v1/chat/completions"
    with plain_http.stream("POST", url, json={**QUESTION, "stream": True}, timeout=15) as answer:
        lines = answer.iter_lines()
        assert f'"policy_version":"{old}"' in next(line for line in lines if "ringway" in line)
        assert put(gateway, NARROW, f'"{old}"').status_code == 200
        rest = list(lines)
    last = json.loads([line[6:] for line in rest if line.startswith("data: {")][-1])
    assert last["ringway"]["policy_version"] == old
    assert "data: [DONE]" in rest
    assert ask(gateway).headers["x-ringway-policy-version"] != old


def test_a_dry_run_tells_what_would_change_and_keeps_no_text(start: Start) -> None:
    gateway = start()
    secret = "xylophone quartz"
    for _ in range(3):
        assert ask(gateway).status_code == 200
    text = {"role": "user", "content": f"{secret} " * 150 + "\n\nWhat is it?"}
    assert ask(gateway, messages=[text]).status_code == 200
    proposed = {"auto": {"full_max_tokens": 100, "hierarchical_max_tokens": 200}}
    answer = plain_http.post(f"{gateway.url}{ROUTING}/dry-run", json=proposed)
    assert secret.split()[0] not in answer.text
    report = answer.json()["report"]
    assert (report["num_shapes"], report["num_changed"]) == (4, 1)
    assert report["before"]["routes"] == {"full": 4}
    assert report["after"]["routes"] == {"full": 3, "retrieval": 1}
    assert report["after"]["tokens_read"] < report["before"]["tokens_read"]
    (changed,) = report["changed"]
    assert changed["before"]["route"] == "full"
    assert "more than 200" in changed["after"]["reason"]
    assert report["by_length"][0]["length"] == "<=1024"
    none = plain_http.post(f"{gateway.url}{ROUTING}/dry-run", json={"allow": ["retrieval"]})
    assert none.json()["report"]["after"]["routes"]["refused"] == 3
    assert etag_of(gateway) == f'"{Policy().version}"'  # nothing was put in force


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"host": "evil.example"}, 403),
        ({"origin": "http://localhost:3000"}, 403),
        ({"x-forwarded-for": "10.0.0.1"}, 403),
    ],
)
def test_without_an_admin_key_only_this_machine_is_let_in(
    start: Start, headers: dict[str, str], status: int
) -> None:
    assert plain_http.get(f"{start().url}{ROUTING}", headers=headers).status_code == status


def test_with_an_admin_key_only_its_holder_is_let_in(start: Start) -> None:
    gateway = start(admin_key=SecretStr("boss"))
    for sent, status in (({}, 401), ({"authorization": "Bearer rk-x"}, 401)):
        assert plain_http.get(f"{gateway.url}{ROUTING}", headers=sent).status_code == status
    let_in = {"authorization": "Bearer boss", "host": "gateway.example"}
    assert plain_http.get(f"{gateway.url}{ROUTING}", headers=let_in).status_code == 200


@pytest.fixture(params=["memory", "sqlite"])
async def history(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[History]:
    if request.param == "memory":
        yield MemoryHistory()
        return
    database = await Database.connect(sqlite_url(tmp_path / "m.db"), metadata)
    yield SqlHistory(database)
    await database.aclose()


def policy(full: int) -> Policy:
    return Policy(auto=AutoPolicy(full_max_tokens=full))


def change(seq: int, full: int) -> Change:
    return Change(
        seq=seq,
        policy=policy(full),
        old_version=None,
        cause=Cause.PUT,
        who="w",
        changed_at=1.5,
    )


async def test_a_history_is_only_added_to_and_in_order(history: History) -> None:
    assert (await history.newest_seq(), list(await history.latest(5))) == (0, [])
    await history.append(change(1, 10))
    await history.append(change(2, 20))
    with pytest.raises(HistoryTaken):
        await history.append(change(2, 30))
    assert list(await history.latest(5)) == [change(2, 20), change(1, 10)]
    assert await history.newest_seq() == 2


async def test_two_gateways_on_one_database_see_each_others_changes(history: History) -> None:
    one = PolicyBoard(policy(1), clock=time.time, history=history)
    two = PolicyBoard(policy(1), clock=time.time, history=history)
    await one.open()
    await two.open()
    await one.replace(policy(2), expected=policy(1).version, who="w")
    with pytest.raises(VersionMismatch):
        await two.replace(policy(3), expected=policy(1).version, who="w")
    assert two.current == policy(2)
    await two.replace(policy(3), expected=policy(2).version, who="w")
    await one.refresh()
    assert one.current == policy(3)
    results = await asyncio.gather(
        one.replace(policy(4), expected=policy(3).version, who="w"),
        two.replace(policy(5), expected=policy(3).version, who="w"),
        return_exceptions=True,
    )
    assert [type(one) for one in results].count(VersionMismatch) == 1


async def test_whoever_spoke_last_is_right_after_a_restart(history: History) -> None:
    first = PolicyBoard(policy(1), clock=time.time, history=history)
    await first.open()
    await first.replace(policy(2), expected=policy(1).version, who="w")
    again = PolicyBoard(policy(1), clock=time.time, history=history)
    await again.open()
    assert again.current == policy(2)  # the file says what it said
    edited = PolicyBoard(policy(3), clock=time.time, history=history)
    await edited.open()
    assert edited.current == policy(3)
    assert [one.cause for one in await history.latest(9)] == [Cause.FILE, Cause.PUT, Cause.FILE]


async def test_a_file_read_again_counts_when_it_is_good(tmp_path: Path) -> None:
    path = tmp_path / "ringway.yaml"
    path.write_text("auto: {full_max_tokens: 5}")
    board = PolicyBoard(load_policy(path), clock=time.time, load=lambda: load_policy(path))
    await board.open()
    path.write_text("auto: {full_max_token: 6}")
    await board.reload()
    assert board.current.auto.full_max_tokens == 5
    path.write_text("auto: {full_max_tokens: 6}")
    await board.reload()
    assert board.current.auto.full_max_tokens == 6
