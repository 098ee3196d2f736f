"""Real answers over real documents by all three routes, asked with the official client."""

import time
from collections.abc import Callable, Iterator

import httpx
import msgspec
import openai
import psutil
import pytest
from openai import OpenAI

from gateway.cli.demo_client import RouteFacts
from ingest.synth.api import CaseFile, CaseRequest, EstimateCounter, Question, states, synthesize
from tests.e2e.running import Running

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(240)]

MODEL = "smollm2-135m-instruct"


@pytest.fixture(scope="module")
def case() -> CaseFile:
    return synthesize(CaseRequest(seed=0, num_tokens=5000), EstimateCounter())


@pytest.fixture(scope="module")
def client(running: Running) -> Iterator[OpenAI]:
    with running.client() as client:
        yield client


@pytest.fixture(scope="module")
def file_id(client: OpenAI, case: CaseFile) -> Iterator[str]:
    [document] = case.documents
    uploaded = client.files.create(
        file=(document.filename, document.text.encode()), purpose="user_data"
    )
    await_status(client, uploaded.id, "processed")
    yield uploaded.id
    client.files.delete(uploaded.id)
    with pytest.raises(openai.NotFoundError):
        client.files.retrieve(uploaded.id)


def await_status(client: OpenAI, file_id: str, wanted: str) -> str | None:
    """Wait for the end of ingest; returns `status_details`."""
    for _ in range(600):
        file = client.files.retrieve(file_id)
        if file.status not in ("uploaded", "in_progress"):
            assert file.status == wanted, file.status_details
            return file.status_details
        time.sleep(0.1)
    raise AssertionError(f"{file_id} is still {file.status}")


def attached(file_id: str, question: str) -> list[dict[str, object]]:
    parts = [{"type": "file", "file": {"file_id": file_id}}, {"type": "text", "text": question}]
    return [{"role": "user", "content": parts}]


def asked(client: OpenAI, messages: object, **fields: object) -> openai.types.chat.ChatCompletion:
    create: Callable[..., openai.types.chat.ChatCompletion] = client.chat.completions.create
    return create(
        model=MODEL, messages=messages, temperature=0, max_completion_tokens=40, extra_body=fields
    )


def ringway_of(answer: object) -> RouteFacts:
    return msgspec.convert(getattr(answer, "ringway", None), RouteFacts)


def test_retrieval_finds_the_planted_facts_and_cites_them(
    client: OpenAI, case: CaseFile, file_id: str
) -> None:
    answers = [
        (q, asked(client, attached(file_id, q.question), fidelity="retrieval"))
        for q in case.key.demo_questions
    ]

    for question, answer in answers:
        told = ringway_of(answer)
        assert told.route == "retrieval"
        assert told.coverage is not None
        assert 0 < told.coverage < 1
        assert is_cited(told, question, case, file_id)
    found = [states(a.choices[0].message.content or "", q) for q, a in answers]
    assert sum(found) >= 2, [a.choices[0].message.content for _, a in answers]


def is_cited(told: RouteFacts, question: Question, case: CaseFile, file_id: str) -> bool:
    """Some citation quotes the planted sentence from where it stands, and every one is verbatim."""
    text = case.documents[0].text
    assert all(text[c.start : c.stop] == c.quote for c in told.citations)
    assert all(c.file_id == file_id for c in told.citations)
    place = question.place
    return any(c.start < place.stop and place.start < c.stop for c in told.citations)


def test_full_reads_every_token(client: OpenAI, case: CaseFile, file_id: str) -> None:
    question = case.key.demo_questions[0]
    answer = asked(client, attached(file_id, question.question), fidelity="full")

    told = ringway_of(answer)
    assert told.route == "full"
    assert told.coverage == 1.0
    assert answer.usage is not None
    assert told.tokens_read == told.prompt_tokens == answer.usage.prompt_tokens > 4096
    assert answer.choices[0].message.content


def test_auto_goes_by_length_and_shows_its_progress(
    running: Running, client: OpenAI, file_id: str
) -> None:
    short = ringway_of(asked(client, [{"role": "user", "content": "Say hello."}]))
    body = {
        "model": MODEL,
        "messages": attached(file_id, "Who signed the lease?"),
        "max_completion_tokens": 8,
        "stream": True,
    }
    reply = httpx.post(f"{running.url}/v1/chat/completions", json=body, timeout=120)

    assert short.route == "full"
    assert "4096" in short.reason
    assert reply.headers["x-ringway-route"] == "hierarchical"
    assert '"reason":"hierarchical: ' in reply.text
    assert ": prefill " in reply.text
    assert reply.text.count("data: [DONE]") == 1
    assert reply.text.count('"finish_reason":"length"') == 1


def test_usage_counts_the_chat_template(client: OpenAI) -> None:
    from transformers import AutoTokenizer

    from engines.models.catalog import default_model_dir

    messages = [{"role": "user", "content": "Name three primary colours."}]
    tokenizer = AutoTokenizer.from_pretrained(default_model_dir())
    expected = tokenizer.apply_chat_template(
        messages, add_generation_prompt=True, return_dict=False
    )

    usage = asked(client, messages).usage

    assert usage is not None
    assert usage.prompt_tokens == len(expected)


def test_a_client_that_leaves_during_prefill_stops_the_ranks_within_250_ms(
    running: Running, file_id: str
) -> None:
    body = {
        "model": MODEL,
        "messages": attached(file_id, "Who signed the lease?"),
        "fidelity": "full",
        "stream": True,
    }
    ranks = running.ranks()
    with httpx.stream("POST", f"{running.url}/v1/chat/completions", json=body) as reply:
        next(line for line in reply.iter_lines() if line.startswith(": prefill"))
    time.sleep(0.25)
    before = busy_s(ranks)
    time.sleep(1.0)

    assert busy_s(ranks) - before < 0.1
    load = httpx.get(f"{running.url_of('engine')}/v1/engine").json()["load"]
    assert load["running"] == 0


def busy_s(ranks: list[psutil.Process]) -> float:
    return sum(sum(rank.cpu_times()[:2]) for rank in ranks)


@pytest.mark.parametrize(
    ("name", "body", "cause"),
    [
        ("empty.txt", b"", "empty"),
        ("noise.bin", bytes(range(256)) * 8, "type"),
        ("broken.txt", ("gut " * 400).encode() + b"\xff\xfe\x80 " + "Käse ".encode() * 99, "UTF-8"),
    ],
)
def test_a_bad_file_gets_a_cause_and_hurts_nothing(
    client: OpenAI, name: str, body: bytes, cause: str
) -> None:
    file = client.files.create(file=(name, body), purpose="user_data")

    assert cause.lower() in (await_status(client, file.id, "error") or "").lower()
    with pytest.raises(openai.APIStatusError) as refused:
        asked(client, attached(file.id, "What does it say?"), fidelity="retrieval")
    assert refused.value.status_code == 400
    good = client.files.create(file=("good.txt", b"The gate code is 9."), purpose="user_data")
    await_status(client, good.id, "processed")


def test_a_long_inline_prompt_is_searched_and_cited(client: OpenAI) -> None:
    filler = "\n\n".join(f"Paragraph {i} tells of weather and harvest." for i in range(900))
    text = f"{filler[:20000]}\n\nThe vault code of the north tower is 48213.\n\n{filler[20000:]}"
    message = f"{text}\n\nWhat is the vault code of the north tower?"
    told = ringway_of(asked(client, [{"role": "user", "content": message}], fidelity="retrieval"))

    assert any("48213" in c.quote for c in told.citations)
    assert all(message[c.start : c.stop] == c.quote for c in told.citations)


def test_a_prompt_over_the_limit_of_its_route_is_refused_with_the_numbers(client: OpenAI) -> None:
    long = [{"role": "user", "content": "word " * 9000 + "\n\nWhat now?"}]
    with pytest.raises(openai.BadRequestError) as refused:
        asked(client, long, fidelity="full")

    assert refused.value.code == "context_length_exceeded"
    assert "8192" in refused.value.message
    assert 'fidelity="retrieval"' in refused.value.message


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"messages": []}, 400),
        ({"messages": "hello"}, 400),
        ({"temperature": 99}, 400),
        ({"model": "nobody"}, 404),
        ({"surprise": 1}, 400),
        ({"messages": attached("file-nobody", "?")}, 404),
        ({"fidelity": "perfect"}, 400),
        ({"n": 0}, 400),
    ],
)
def test_bad_input_gets_openais_error_shape(
    running: Running, change: dict[str, object], status: int
) -> None:
    good = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 1}
    reply = httpx.post(f"{running.url}/v1/chat/completions", json=good | change, timeout=30)

    assert reply.status_code == status
    error = reply.json()["error"]
    assert set(error) >= {"message", "type", "param", "code"}


def test_malformed_json_is_refused(running: Running) -> None:
    reply = httpx.post(f"{running.url}/v1/chat/completions", content=b'{"model": ', timeout=30)

    assert reply.status_code == 400
    assert reply.json()["error"]["type"] == "invalid_request_error"
