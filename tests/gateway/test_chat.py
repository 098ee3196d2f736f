import json
import re
from collections.abc import Mapping
from typing import Any, cast

import httpx
import openai
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from engines.api import Attention, EngineLost
from engines.fake import FakeSettings
from gateway.policy import AutoPolicy, LimitPolicy, Policy, RetrievalPolicy
from tests.gateway.fakes import (
    BpeEngine,
    Running,
    Start,
    bpe_say,
    ids_of,
    paragraphs,
    tokenizer_files,
    trained,
)

FACT = "Anna Pavlova signed the warehouse agreement in Lisbon."
QUESTION = "Who signed the warehouse agreement?"
LONG = paragraphs(["Rent is paid monthly.", FACT], 60)

SMALL = Policy(
    auto=AutoPolicy(full_max_tokens=300, hierarchical_max_tokens=900),
    retrieval=RetrievalPolicy(inline_min_chars=400, total_tokens=200, passage_tokens=100),
)


def facts_of(answer: ChatCompletion | ChatCompletionChunk) -> Mapping[str, Any]:
    return cast(Mapping[str, Any], answer.model_extra and answer.model_extra["ringway"])


def ask(gateway: Running, content: Any, **fields: Any) -> ChatCompletion:
    extra = {
        name: fields.pop(name)
        for name in ("fidelity", "documents", "allow_fallback", "vector_store_ids")
        if name in fields
    }
    answer = gateway.client().chat.completions.create(
        model="fake", messages=[{"role": "user", "content": content}], extra_body=extra, **fields
    )
    return cast(ChatCompletion, answer)


def test_a_short_question_is_answered_in_full_with_exact_counts(start: Start) -> None:
    engine = BpeEngine(bpe_say("Hello, 東京 👩‍👧!"))
    answer = ask(start(engine), "hi")
    prompt = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert answer.choices[0].message.content == "Hello, 東京 👩‍👧!"
    assert answer.choices[0].finish_reason == "stop"
    assert list(engine.requests[0].prompt_ids) == ids_of(prompt)
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == len(ids_of(prompt))
    assert answer.usage.completion_tokens == len(ids_of("Hello, 東京 👩‍👧!"))
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens == 0
    facts = facts_of(answer)
    assert (facts["route"], facts["requested"], facts["coverage"]) == ("full", "auto", 1.0)
    assert {"count", "prefill", "decode", "total", "ttft"} <= set(facts["timing_ms"])


def test_a_streamed_answer_equals_the_whole_one_and_carries_its_facts(start: Start) -> None:
    text = "A 東京 café, 👩‍👧 and \u0000 more."
    gateway = start(BpeEngine(bpe_say(text)))
    chunks = list(
        gateway.client().chat.completions.create(
            model="fake",
            messages=[{"role": "user", "content": "hi"}],
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == text
    assert all("\ufffd" not in chunk.model_dump_json() for chunk in chunks)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert facts_of(chunks[0])["route"] == "full"
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == len(ids_of(text))
    assert facts_of(chunks[-1])["timing_ms"]["total"] >= 0
    assert len({chunk.id for chunk in chunks}) == 1


def test_headers_tell_the_route_the_count_and_the_policy(start: Start) -> None:
    gateway = start(policy=SMALL)
    body = {"model": "fake", "messages": [{"role": "user", "content": "hi"}]}
    for stream in (False, True):
        answer = httpx.post(
            f"{gateway.url}/v1/chat/completions",
            json={**body, "stream": stream},
            headers={"x-request-id": "mine-1"},
        )
        assert answer.headers["x-request-id"] == "mine-1"
        assert answer.headers["x-ringway-route"] == "full"
        assert int(answer.headers["x-ringway-prompt-tokens"]) > 5
        assert answer.headers["x-ringway-policy-version"] == SMALL.version


def upload(gateway: Running, name: str, text: str) -> str:
    file = gateway.client().files.create(file=(name, text.encode()), purpose="user_data")
    return file.id


def with_file(file_id: str, question: str) -> list[dict[str, object]]:
    return [
        {"type": "file", "file": {"file_id": file_id}},
        {"type": "text", "text": question},
    ]


@pytest.mark.parametrize("kind", ["file", "documents", "inline"])
def test_retrieval_reads_little_and_cites_what_supports_the_answer(start: Start, kind: str) -> None:
    engine = BpeEngine(bpe_say("Anna Pavlova [1]."))
    gateway = start(engine, SMALL)
    file_id = upload(gateway, "lease.txt", LONG) if kind == "file" else None
    match kind:
        case "file":
            answer = ask(gateway, with_file(str(file_id), QUESTION), fidelity="retrieval")
        case "documents":
            documents = [{"id": "other", "text": "Weather."}, {"id": "lease", "text": LONG}]
            answer = ask(gateway, QUESTION, fidelity="retrieval", documents=documents)
        case _:
            answer = ask(gateway, f"{LONG}\n\n{QUESTION}", fidelity="retrieval")
    facts = facts_of(answer)
    [citation] = facts["citations"]
    text = f"{LONG}\n\n{QUESTION}" if kind == "inline" else LONG
    assert citation["quote"] == FACT
    assert text[citation["start"] : citation["stop"]] == FACT
    names = {"file": (file_id, None), "documents": (None, "lease"), "inline": (None, "prompt")}
    assert (citation["file_id"], citation["document_id"]) == names[kind]
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == facts["tokens_read"] == len(engine.requests[0].prompt_ids)
    assert facts["tokens_read"] < facts["prompt_tokens"] / 2
    assert 0 < facts["coverage"] < 0.5
    read = trained().decode(list(engine.requests[0].prompt_ids))
    assert "[1]" in read
    assert FACT in read
    assert read.endswith(f"{QUESTION}\nassistant\n")


@pytest.mark.parametrize("fidelity", ["auto", "retrieval"])
def test_vector_stores_are_searched_and_their_files_cited(start: Start, fidelity: str) -> None:
    engine = BpeEngine(bpe_say("Anna Pavlova [1]."))
    gateway = start(engine, SMALL)
    file_id = upload(gateway, "lease.txt", LONG)
    store = gateway.client().vector_stores.create(file_ids=[file_id])
    answer = ask(gateway, QUESTION, fidelity=fidelity, vector_store_ids=[store.id])
    facts = facts_of(answer)
    assert (facts["route"], facts["coverage"]) == ("retrieval", None)
    [citation] = facts["citations"]
    assert (citation["quote"], citation["file_id"]) == (FACT, file_id)
    assert LONG[citation["start"] : citation["stop"]] == FACT
    assert FACT in trained().decode(list(engine.requests[0].prompt_ids))


def test_a_file_that_is_attached_and_in_a_store_is_read_once(start: Start) -> None:
    engine = BpeEngine(bpe_say("Anna Pavlova [1]."))
    gateway = start(engine, SMALL)
    file_id = upload(gateway, "lease.txt", LONG)
    stores = [gateway.client().vector_stores.create(file_ids=[file_id]).id for _ in range(2)]
    ask(gateway, with_file(file_id, QUESTION), vector_store_ids=stores)
    assert trained().decode(list(engine.requests[0].prompt_ids)).count(FACT) == 1


def test_stores_that_cannot_be_read_are_refused(start: Start) -> None:
    gateway = start(policy=SMALL)
    with pytest.raises(openai.NotFoundError) as missing:
        ask(gateway, QUESTION, vector_store_ids=["vs_nobody"])
    assert missing.value.code == "vector_store_not_found"
    with pytest.raises(openai.BadRequestError) as refused:
        ask(gateway, QUESTION, fidelity="full", vector_store_ids=["vs_nobody"])
    assert refused.value.param == "vector_store_ids"


def test_citations_of_files_are_openais_annotations_too(start: Start) -> None:
    said = "It was Anna Pavlova [1]. In Lisbon."
    gateway = start(BpeEngine(bpe_say(said)), SMALL)
    file_id = upload(gateway, "lease.txt", LONG)
    content = with_file(file_id, QUESTION)
    expected = {
        "type": "file_citation",
        "file_id": file_id,
        "filename": "lease.txt",
        "index": said.index("]") + 1,
    }
    answer = ask(gateway, content, fidelity="retrieval")
    message = answer.choices[0].message
    assert message.annotations is not None
    assert [one.to_dict() for one in message.annotations] == [expected]
    body = {
        "model": "fake",
        "messages": [{"role": "user", "content": content}],
        "fidelity": "retrieval",
        "stream": True,
    }
    raw = httpx.post(f"{gateway.url}/v1/chat/completions", json=body).text
    lines = [line[6:] for line in raw.splitlines() if line.startswith("data: {")]
    deltas = [json.loads(line)["choices"][0]["delta"] for line in lines]
    assert [delta["annotations"] for delta in deltas if "annotations" in delta] == [[expected]]
    echoed = [
        {"role": "user", "content": content},
        message.to_dict(),
        {"role": "user", "content": "Where?"},
    ]
    again = gateway.client().chat.completions.create(
        model="fake",
        messages=echoed,  # type: ignore[arg-type]
    )
    assert again.choices[0].finish_reason == "stop"


def test_hierarchical_cites_from_the_attended_spans(start: Start) -> None:
    engine = BpeEngine(bpe_say("Anna Pavlova signed."))
    answer = ask(start(engine, SMALL), f"{LONG}\n\n{QUESTION}", fidelity="hierarchical")
    request = engine.requests[0]
    facts = facts_of(answer)
    assert request.attention is Attention.HIERARCHICAL
    assert (
        trained()
        .decode(list(request.prompt_ids[request.question_start :]), skip_special_tokens=False)
        .startswith(f"\n\n{QUESTION}")
    )
    assert FACT in [one["quote"] for one in facts["citations"]]
    assert (facts["tokens_read"], facts["recall"]) == (facts["prompt_tokens"], 1.0)


def test_auto_goes_by_length(start: Start) -> None:
    gateway = start(BpeEngine(bpe_say("Anna Pavlova.")), SMALL)
    assert facts_of(ask(gateway, "hi"))["route"] == "full"
    middle = facts_of(ask(gateway, QUESTION, documents=[{"id": "d", "text": LONG[:1500]}]))
    assert middle["route"] == "hierarchical"
    assert facts_of(ask(gateway, f"{LONG}\n\n{QUESTION}"))["route"] == "retrieval"


def test_weak_evidence_escalates_under_auto_only(start: Start) -> None:
    gateway = start(BpeEngine(bpe_say("Nobody.")), SMALL)
    question = "Which zeppelin captain visited Ouagadougou?"
    facts = facts_of(ask(gateway, f"{LONG}\n\n{question}"))
    assert (facts["route"], facts["escalated_from"]) == ("hierarchical", "retrieval")
    assert re.search(r"weak evidence \(0\.\d{3}, less than 0\.2\)$", str(facts["reason"]))
    facts = facts_of(ask(gateway, f"{LONG}\n\n{question}", fidelity="retrieval"))
    assert (facts["route"], facts["escalated_from"]) == ("retrieval", None)


def test_full_over_its_limit_falls_back_only_where_allowed(start: Start) -> None:
    limits = {Attention.FULL: 1000, Attention.HIERARCHICAL: 1_000_000}
    gateway = start(BpeEngine(settings=FakeSettings(context_tokens=limits)), SMALL)
    facts = facts_of(
        ask(gateway, f"{LONG}\n\n{QUESTION}", fidelity="full", allow_fallback=True, max_tokens=5)
    )
    assert facts["fallback_from"] == "full"
    with pytest.raises(openai.BadRequestError) as caught:
        ask(gateway, f"{LONG}\n\n{QUESTION}", fidelity="full", max_tokens=5)
    assert caught.value.code == "context_length_exceeded"
    assert 'fidelity="retrieval"' in caught.value.message


class SmallerThanItSays(BpeEngine):
    """Claims 8,192 tokens of full attention and holds 1,000."""

    def _check(self, request: Any) -> None:
        if request.attention is Attention.FULL and len(request.prompt_ids) > 1000:
            self._settings = FakeSettings(
                context_tokens={Attention.FULL: 1000, Attention.HIERARCHICAL: 1_000_000}
            )
        super()._check(request)


def test_an_engine_that_holds_less_than_it_said_is_fallen_back_from(start: Start) -> None:
    policy = Policy(auto=AutoPolicy(full_max_tokens=8000), retrieval=SMALL.retrieval)
    facts = facts_of(ask(start(SmallerThanItSays(), policy), f"{LONG}\n\n{QUESTION}", max_tokens=9))
    assert facts["fallback_from"] == "full"
    assert facts["route"] in ("hierarchical", "retrieval")


def test_a_prompt_over_every_byte_bound_is_refused_before_counting(start: Start) -> None:
    limits = {Attention.FULL: 1000, Attention.HIERARCHICAL: 1000}
    policy = Policy(limits=LimitPolicy(retrieval=1000))
    gateway = start(BpeEngine(settings=FakeSettings(context_tokens=limits)), policy)
    with pytest.raises(openai.BadRequestError) as caught:
        ask(gateway, "x" * 1_000_000)
    assert caught.value.code == "context_length_exceeded"
    assert "at least" in caught.value.message


def test_an_answer_ends_at_its_stop_string_and_frees_the_engine(start: Start) -> None:
    engine = BpeEngine(bpe_say("one two three four"), FakeSettings(token_delay_s=0.001))
    gateway = start(engine)
    answer = ask(gateway, "count", stop=["thr", "zzz"])
    assert answer.choices[0].message.content == "one two "
    assert answer.choices[0].finish_reason == "stop"
    assert len(engine.aborted) == 1


def test_length_bounds_the_answer_and_says_so(start: Start) -> None:
    answer = ask(start(BpeEngine(bpe_say("a b c d e f"))), "hi", max_completion_tokens=3)
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 3


def test_logprobs_spell_every_token(start: Start) -> None:
    answer = ask(start(BpeEngine(bpe_say("é fox"))), "hi", logprobs=True, top_logprobs=2)
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    spelled = [byte for token in logprobs.content for byte in token.bytes or []]
    assert bytes(spelled).decode() == "é fox"
    assert all(len(token.top_logprobs) == 2 for token in logprobs.content)


def test_sampling_reaches_the_engine(start: Start) -> None:
    engine = BpeEngine()
    ask(
        start(engine),
        "hi",
        temperature=0,
        top_p=0.5,
        seed=7,
        presence_penalty=1,
        frequency_penalty=-1,
        logit_bias={"5": -100},
        service_tier="priority",
    )
    request = engine.requests[0]
    sampling = request.sampling
    assert (sampling.temperature, sampling.top_p, sampling.seed) == (0, 0.5, 7)
    assert (sampling.presence_penalty, sampling.frequency_penalty) == (1, -1)
    assert sampling.logit_bias == {5: -100}
    assert request.service_tier == "priority"
    assert request.stop_ids == tokenizer_files().stop_ids


def test_a_bias_on_a_token_that_the_model_does_not_have_is_refused(start: Start) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        ask(start(), "hi", logit_bias={"999999": 1})
    assert caught.value.param == "logit_bias"


def test_unknown_models_and_files_are_not_found(start: Start) -> None:
    gateway = start()
    with pytest.raises(openai.NotFoundError) as caught:
        gateway.client().chat.completions.create(
            model="gpt-9", messages=[{"role": "user", "content": "hi"}]
        )
    assert caught.value.code == "model_not_found"
    with pytest.raises(openai.NotFoundError) as caught:
        ask(gateway, with_file("file-nobodys", "hi"))
    assert caught.value.code == "file_not_found"


def test_a_file_that_could_not_be_read_is_refused_with_its_cause(start: Start) -> None:
    gateway = start()
    file_id = upload(gateway, "empty.txt", "")
    with pytest.raises(openai.BadRequestError) as caught:
        ask(gateway, with_file(file_id, "hi"))
    assert caught.value.code == "file_unreadable"
    assert "empty" in caught.value.message


def test_an_error_after_the_first_byte_is_a_frame_that_the_client_raises(start: Start) -> None:
    settings = FakeSettings(failure=EngineLost("the gang died"), fails_after=2)
    gateway = start(BpeEngine(bpe_say("one two three"), settings))
    stream = gateway.client().chat.completions.create(
        model="fake", messages=[{"role": "user", "content": "hi"}], stream=True
    )
    seen: list[str] = []
    with pytest.raises(openai.APIError, match="the gang died"):
        seen.extend(chunk.choices[0].delta.content or "" for chunk in stream)


def test_models_are_listed_and_retrieved(start: Start) -> None:
    client = start().client()
    assert [model.id for model in client.models.list()] == ["fake"]
    assert client.models.retrieve("fake").owned_by == "ringway"


def test_metrics_count_routes_outcomes_and_seconds(start: Start) -> None:
    gateway = start(policy=SMALL)
    ask(gateway, "hi")
    with pytest.raises(openai.NotFoundError):
        ask(gateway, with_file("file-x", "hi"))
    page = httpx.get(f"{gateway.url}/metrics").text
    for line in (
        'ringway_routes_total{cause="choice",length="<=1024",requested="auto",route="full"} 1.0',
        'ringway_requests_total{code="",endpoint="chat.completions",outcome="finished"} 1.0',
        'ringway_requests_total{code="file_not_found",endpoint="chat.completions",outcome="failed"}',
        'ringway_tokenize_seconds_count{length="<=1024"} 1.0',
        'ringway_time_to_first_token_seconds_count{route="full"} 1.0',
        'ringway_coverage_ratio_count{route="full"} 1.0',
    ):
        assert line in page
