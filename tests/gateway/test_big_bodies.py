import json
import threading
import time

import httpx

from engines.api import Attention
from engines.fake import FakeSettings
from gateway.policy import AutoPolicy, Policy
from tests.gateway.fakes import BpeEngine, Start

HUGE = {Attention.FULL: 4_000_000, Attention.HIERARCHICAL: 4_000_000}
LIMIT_S = 0.1


def test_a_body_of_four_megabytes_does_not_hold_up_health(start: Start) -> None:
    engine = BpeEngine(settings=FakeSettings(context_tokens=HUGE, prefill_chunk_tokens=1_000_000))
    policy = Policy(auto=AutoPolicy(full_max_tokens=4_000_000, hierarchical_max_tokens=4_000_000))
    gateway = start(engine, policy)
    text = "the quick brown fox jumps over the lazy dog, and it isn't here.\n" * 62_500
    answers: list[httpx.Response] = []

    def post() -> None:
        body = {"model": "fake", "messages": [{"role": "user", "content": text}]}
        raw = json.dumps(body)
        url = f"{gateway.url}/v1/chat/completions"
        answers.append(httpx.post(url, content=raw, timeout=60))

    with httpx.Client() as client:
        client.get(f"{gateway.url}/health/live")
        thread = threading.Thread(target=post)
        thread.start()
        stalls = []
        while thread.is_alive():
            asked = time.perf_counter()
            assert client.get(f"{gateway.url}/health/live").status_code == 200
            stalls.append(time.perf_counter() - asked)
            time.sleep(0.002)
    assert answers[0].status_code == 200
    assert answers[0].json()["ringway"]["prompt_tokens"] > 500_000
    assert max(stalls) < LIMIT_S, f"{max(stalls) * 1000:.0f} ms"


def test_a_body_over_the_cap_is_a_413_announced_or_not(start: Start) -> None:
    gateway = start(max_body_bytes=10_000)
    url = f"{gateway.url}/v1/chat/completions"
    announced = httpx.post(url, content=b"x" * 20_000)
    chunked = httpx.post(url, content=iter([b"x" * 6_000] * 3))
    for answer in (announced, chunked):
        assert answer.status_code == 413
        assert answer.json()["error"]["code"] == "request_too_large"


def test_an_upload_over_the_cap_is_a_413(start: Start) -> None:
    gateway = start(max_upload_bytes=10_000)
    files = {"file": ("a.txt", b"x" * 2_000_000)}
    data = {"purpose": "user_data"}
    answer = httpx.post(f"{gateway.url}/v1/files", files=files, data=data)
    assert answer.status_code == 413
    assert answer.json()["error"]["code"] == "request_too_large"
