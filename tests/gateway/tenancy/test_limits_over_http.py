import json
import logging
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from engines.api import EngineLost
from engines.fake import FakeSettings
from gateway.answers import Usage
from gateway.policy import Policy, Price, PricePolicy, TenancyPolicy
from gateway.tenancy.accounts import Accounts
from gateway.tenancy.api import Grants
from gateway.tenancy.memory_limits import MemoryLimits
from gateway.tenancy.outage import FailClosed, FailOpen
from gateway.tenancy.prices import cost_micros, counted_tokens, price_of
from gateway.tenancy.redis_limits import RedisLimits
from gateway.tenancy.spending import MemorySpending
from ingest.embeddings_api import Embedded, EmbedderFacts
from tests.gateway import plain_http
from tests.gateway.fakes import BpeEngine, Running, Start, bpe_say
from tests.gateway.tenancy.redis_server import free_port, redis_server
from tests.gateway.tenancy.test_keys import Issued
from tests.gateway.test_cancellation import waited_for

QUESTION = {"model": "fake", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 10}


def ask(gateway: Running, headers: dict[str, str], **more: object) -> httpx.Response:
    url = f"{gateway.url}/v1/chat/completions"
    return plain_http.post(url, headers=headers, json={**QUESTION, **more}, timeout=15)


def left(answer: httpx.Response) -> int:
    return int(answer.headers["x-ratelimit-remaining-tokens"])


def test_tokens_are_reserved_before_and_settled_after(start: Start) -> None:
    issued = Issued()
    key = issued.issue("a", Grants(requests_per_min=10, tokens_per_min=1000))
    gateway = start(issued=issued)
    answer = ask(gateway, key)
    used = answer.json()["usage"]["total_tokens"]
    headers = answer.headers
    assert left(answer) == 1000 - used
    assert headers["x-ratelimit-limit-tokens"] == "1000"
    assert headers["x-ratelimit-limit-requests"] == "10"
    assert headers["x-ratelimit-remaining-requests"] == "9"
    assert headers["x-ratelimit-reset-requests"] in ("60s", "1m0s")
    listed = plain_http.get(f"{gateway.url}/v1/models", headers=key)
    assert listed.headers["x-ratelimit-remaining-requests"] == "8"


def test_a_stream_tells_the_standing_and_settles_too(start: Start) -> None:
    issued = Issued()
    key = issued.issue("a", Grants(tokens_per_min=1000))
    gateway = start(issued=issued)
    asked = {"stream": True, "stream_options": {"include_usage": True}}
    answer = ask(gateway, key, **asked)
    frames = [line[6:] for line in answer.text.splitlines() if line.startswith("data: {")]
    usage = json.loads(frames[-1])["usage"]
    reserved = 1000 - left(answer)
    assert reserved == usage["prompt_tokens"] + 10
    assert left(ask(gateway, key)) == 1000 - 2 * usage["total_tokens"]


def test_a_request_over_what_is_left_waits_and_one_over_the_limit_learns_what_fits(
    start: Start,
) -> None:
    issued = Issued()
    key = issued.issue("a", Grants(tokens_per_min=100))
    gateway = start(issued=issued)
    prompt = ask(gateway, key, max_tokens=1).json()["usage"]["prompt_tokens"]
    later = ask(gateway, key, max_tokens=100 - prompt)
    error = later.json()["error"]
    assert (later.status_code, error["code"]) == (429, "rate_limit_exceeded")
    assert 1 <= int(later.headers["retry-after"]) <= 60
    assert f"{prompt + 1} of 100 tokens per minute are in use" in error["message"]
    assert left(later) == 100 - prompt - 1
    never = ask(gateway, key, max_tokens=101 - prompt)
    error = never.json()["error"]
    assert (never.status_code, error["code"]) == (429, "request_over_limit")
    assert "retry-after" not in never.headers
    assert never.headers["x-should-retry"] == "false"
    assert "needs up to 101 tokens per minute; the limit is 100" in error["message"]
    assert f"beside this prompt, an answer of {100 - prompt}." in error["message"]
    refused = gateway.parts.metrics.page().decode()
    assert 'ringway_limit_refusals_total{limit="tokens"} 2.0' in refused


def test_requests_over_the_limit_are_refused_on_every_path(start: Start) -> None:
    issued = Issued()
    key = issued.issue("a", Grants(requests_per_min=2))
    gateway = start(issued=issued)
    answers = [plain_http.get(f"{gateway.url}/v1/files", headers=key) for _ in range(3)]
    assert [one.status_code for one in answers] == [200, 200, 429]
    assert answers[2].headers["x-ratelimit-remaining-requests"] == "0"
    assert "retry-after" in answers[2].headers


@pytest.mark.parametrize("stream", [True, False])
def test_whoever_leaves_pays_for_what_was_read_and_written_once(start: Start, stream: bool) -> None:
    issued = Issued()
    key = issued.issue("a", Grants(tokens_per_min=10_000))
    engine = BpeEngine(bpe_say("word " * 400), FakeSettings(token_delay_s=0.02))
    gateway = start(engine, issued=issued)
    url = f"{gateway.url}/v1/chat/completions"
    body = {**QUESTION, "max_tokens": 300, "stream": stream}
    if stream:
        with plain_http.stream("POST", url, headers=key, json=body) as answer:
            for _, line in zip(range(12), answer.iter_lines(), strict=False):
                assert line is not None
    else:
        with pytest.raises(httpx.ReadTimeout):
            plain_http.post(url, headers=key, json=body, timeout=1)
    waited_for(lambda: bool(engine.aborted), 10)
    prompt = len(engine.requests[0].prompt_ids)
    standings = {left(plain_http.get(f"{gateway.url}/v1/models", headers=key)) for _ in range(2)}
    assert len(standings) == 1
    assert prompt < 10_000 - standings.pop() < prompt + 300


def test_a_failure_settles_with_what_was_seen(start: Start) -> None:
    issued = Issued()
    key = issued.issue("a", Grants(tokens_per_min=1000, long_prompts=1))
    policy = Policy(tenancy=TenancyPolicy(long_prompt_tokens=1))
    failing = FakeSettings(failure=EngineLost("gone"), fails_after=3)
    gateway = start(BpeEngine(bpe_say("a b c d e f g"), failing), policy, issued=issued)
    for _ in range(2):  # the place among long prompts is free again each time
        assert ask(gateway, key).json()["error"]["code"] == "engine_lost"
    listed = plain_http.get(f"{gateway.url}/v1/models", headers=key)
    whole = start(BpeEngine(bpe_say("x")), issued=issued)
    prompt = ask(whole, key).json()["usage"]["prompt_tokens"]
    assert left(listed) == 1000 - 2 * (prompt + 3)


def test_embeddings_count_what_was_read(start: Start) -> None:
    issued = Issued()
    key = issued.issue("a", Grants(tokens_per_min=20))
    gateway = start(issued=issued, embeddings=CountingEmbeddings())

    def embed(text: str) -> httpx.Response:
        body = {"model": "tiny", "input": text}
        return plain_http.post(f"{gateway.url}/v1/embeddings", headers=key, json=body)

    assert left(embed("five words of some text")) == 15
    assert embed("x " * 15).status_code == 200
    assert embed("one").json()["error"]["code"] == "rate_limit_exceeded"


class CountingEmbeddings:
    async def facts(self) -> EmbedderFacts:
        return EmbedderFacts(model="tiny", dimension=2, max_tokens=99)

    async def embed(self, texts: Sequence[str]) -> Embedded:
        num_tokens = [len(text.split()) for text in texts]
        return Embedded(vectors=[[1.0, 0.0] for _ in texts], num_tokens=num_tokens)


def test_cached_tokens_count_as_the_policy_says() -> None:
    usage = Usage(prompt_tokens=1000, cached_tokens=800, completion_tokens=50)
    for weight, counted in ((1.0, 1050), (0.0, 250), (0.5, 650)):
        policy = Policy(tenancy=TenancyPolicy(cached_token_weight=weight))
        assert counted_tokens(usage, policy) == counted
    cheap = Price(up_to_tokens=500, input=1, output=2)
    dear = Price(input=3, cached_input=0.25, output=10)
    policy = Policy(prices=PricePolicy(full=(cheap, dear)))
    full = policy.allow[0]
    assert price_of(full, 500, policy) is cheap
    assert cost_micros(price_of(full, 501, policy), usage) == 200 * 3 + 800 // 4 + 50 * 10


def test_a_budget_ends_with_the_numbers(start: Start) -> None:
    issued = Issued()
    key = issued.issue("a", Grants(monthly_budget_micros=2000))
    policy = Policy(prices=PricePolicy(full=(Price(input=1, output=100),)))
    gateway = start(BpeEngine(bpe_say("a b")), policy, issued=issued)
    usage = ask(gateway, key).json()["usage"]
    cost = usage["prompt_tokens"] + 100 * usage["completion_tokens"]
    num = 1
    while (answer := ask(gateway, key)).status_code == 200:
        num += 1
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (429, "insufficient_quota")
    assert answer.headers["x-should-retry"] == "false"
    assert "budget" in error["message"]
    assert f"{num * cost} of 2000" in error["message"]
    assert num * cost + usage["prompt_tokens"] + 1000 > 2000
    never = ask(gateway, key, max_tokens=21)
    assert never.json()["error"]["code"] == "request_over_limit"


@pytest.mark.services
def test_an_outage_of_redis_is_survived_or_refused_as_configured(
    start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    issued, port = Issued(), free_port()
    key = issued.issue("a", Grants(tokens_per_min=1000))

    def gateway_with(kind: str) -> Running:
        shared = RedisLimits.connect(f"redis://127.0.0.1:{port}/0")
        limits = FailOpen(shared, MemoryLimits(clock=time.time))
        accounts = Accounts(
            limits if kind == "open" else FailClosed(shared), MemorySpending(), clock=time.time
        )
        return start(issued=issued, accounts=accounts)

    with caplog.at_level(logging.WARNING):
        opened, closed = gateway_with("open"), gateway_with("closed")
        with redis_server(tmp_path, port):
            first = ask(opened, key)
            second = ask(closed, key)
            used = first.json()["usage"]["total_tokens"]
            assert left(second) == 1000 - 2 * used  # one limit for both
        alone = ask(opened, key)
        assert left(alone) == 1000 - used
        refused = ask(closed, key)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
        assert refused.json()["error"]["code"] == "limits_unavailable"
        with redis_server(tmp_path, port):
            assert left(ask(opened, key)) == 1000 - used
            assert ask(closed, key).status_code == 200
    said = [record.message for record in caplog.records]
    assert said.count("shared limits are away: counting alone") == 1
    assert said.count("shared limits are away: refusing") == 1
    assert said.count("shared limits are back") == 2


def shared_by(url: str, *, closed: bool = False) -> Accounts:
    shared = RedisLimits.connect(url)
    own = MemoryLimits(clock=time.time)
    limits = FailClosed(shared) if closed else FailOpen(shared, own)
    return Accounts(limits, MemorySpending(), clock=time.time)


@pytest.mark.services
def test_two_busy_gateways_share_one_limit_to_the_token(start: Start, tmp_path: Path) -> None:
    issued, num_asked = Issued(), 60
    key = issued.issue("a", Grants(tokens_per_min=500))
    slow = FakeSettings(token_delay_s=0.01)
    with redis_server(tmp_path) as url:
        both = [
            start(BpeEngine(bpe_say("a b c d"), slow), issued=issued, accounts=shared_by(url))
            for _ in range(2)
        ]
        with ThreadPoolExecutor(16) as pool:
            answers = list(pool.map(lambda i: ask(both[i % 2], key, seed=i), range(num_asked)))
        used = sum(one.json()["usage"]["total_tokens"] for one in answers if one.is_success)
        assert {one.status_code for one in answers} == {200, 429}
        for gateway in both:
            listed = plain_http.get(f"{gateway.url}/v1/models", headers=key)
            assert left(listed) == 500 - used


@pytest.mark.services
@pytest.mark.parametrize("closed", [False, True], ids=["open", "closed"])
def test_requests_in_flight_outlive_redis_and_their_cost_is_kept(
    start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture, closed: bool
) -> None:
    issued, port = Issued(), free_port()
    key = issued.issue("a", Grants(monthly_budget_micros=2000))
    policy = Policy(prices=PricePolicy(full=(Price(input=1, output=100),)))
    engine = BpeEngine(bpe_say("a b"), FakeSettings(prefill_delay_s=0.5))
    accounts = shared_by(f"redis://127.0.0.1:{port}/0", closed=closed)
    gateway = start(engine, policy, issued=issued, accounts=accounts)
    with caplog.at_level(logging.WARNING), ThreadPoolExecutor(1) as pool:
        with redis_server(tmp_path, port):
            cost = cost_of(ask(gateway, key))
            flying = pool.submit(ask, gateway, key)
            waited_for(lambda: len(engine.requests) == 2, 5)
        assert cost_of(flying.result()) == cost
        assert ask(gateway, key).status_code == (503 if closed else 200)
        spent = 2 * cost if closed else 3 * cost
        with redis_server(tmp_path, port):  # it has forgotten everything; the disk has not
            while (answer := ask(gateway, key)).status_code == 200:
                spent += cost
    assert f"{spent} of 2000" in answer.json()["error"]["message"]
    said = [record.message for record in caplog.records]
    assert said.count("not settled; the lease ends it") == 1


def cost_of(answer: httpx.Response) -> int:
    usage = answer.json()["usage"]
    cost: int = usage["prompt_tokens"] + 100 * usage["completion_tokens"]
    return cost
