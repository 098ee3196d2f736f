"""/v1/responses as OpenAI's own client sees it, over a real socket."""

import json
from typing import Any

import httpx
import openai
import pytest
from openai.types.responses import Response as OpenAIResponse

from engines.api import EngineLost
from engines.fake import FakeSettings
from gateway.policy import AutoPolicy, Policy, RetrievalPolicy
from tests.gateway.fakes import BpeEngine, Running, Start, bpe_say, ids_of, paragraphs, trained

FACT = "Anna Pavlova signed the warehouse agreement in Lisbon."
QUESTION = "Who signed the warehouse agreement?"
LONG = paragraphs(["Rent is paid monthly.", FACT], 60)

SMALL = Policy(
    auto=AutoPolicy(full_max_tokens=300, hierarchical_max_tokens=900),
    retrieval=RetrievalPolicy(inline_min_chars=400, total_tokens=200, passage_tokens=100),
)


PIXEL = "data:image/png;base64,iVBORw0KGgo="
HELLO = [{"role": "user", "content": "hi"}]


def image(**fields: str) -> dict[str, object]:
    text = {"type": "input_text", "text": "What is it?"}
    return {"role": "user", "content": [text, {"type": "input_image", **fields}]}


def ask(gateway: Running, text: Any = "hi", **fields: Any) -> OpenAIResponse:
    answer: OpenAIResponse = gateway.client().responses.create(model="fake", input=text, **fields)
    return answer


def read_by(engine: BpeEngine) -> str:
    text: str = trained().decode(list(engine.requests[-1].prompt_ids), skip_special_tokens=False)
    return text


def test_an_answer_has_openais_shape_and_exact_counts(start: Start) -> None:
    engine = BpeEngine(bpe_say("Hello, 東京 👩‍👧!"))
    answer = ask(
        start(engine), "hi", instructions="Be brief.", metadata={"case": "7"}, max_output_tokens=99
    )
    assert answer.output_text == "Hello, 東京 👩‍👧!"
    assert (answer.status, answer.error, answer.incomplete_details) == ("completed", None, None)
    assert answer.usage is not None
    assert answer.usage.input_tokens == len(engine.requests[0].prompt_ids)
    assert answer.usage.output_tokens == len(ids_of("Hello, 東京 👩‍👧!"))
    assert answer.usage.input_tokens_details.cached_tokens == 0
    assert answer.metadata == {"case": "7"}
    assert read_by(engine) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    extra = answer.model_extra or {}
    assert extra["ringway"]["route"] == "full"


def test_a_conversation_goes_on_from_what_was_kept(start: Start) -> None:
    engine = BpeEngine(bpe_say("First answer."))
    gateway = start(engine)
    first = ask(gateway, "one", instructions="Only for the first.")
    second = ask(gateway, "two", previous_response_id=first.id)
    ask(gateway, "three", previous_response_id=second.id)
    turns = [("user", "one"), ("assistant", "First answer."), ("user", "two")]
    turns += [("assistant", "First answer."), ("user", "three")]
    told = "".join(f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in turns)
    assert read_by(engine) == told + "<|im_start|>assistant\n"
    items = gateway.client().responses.input_items.list(second.id, order="asc", limit=2)
    assert [item.type for item in items] == ["message", "message", "message"]


def test_a_kept_response_is_the_one_that_was_given_until_it_is_deleted(start: Start) -> None:
    gateway = start()
    client = gateway.client()
    answer = ask(gateway)
    assert client.responses.retrieve(answer.id).to_dict() == answer.to_dict()
    client.responses.delete(answer.id)
    for call in (client.responses.retrieve, client.responses.delete, client.responses.cancel):
        with pytest.raises(openai.NotFoundError) as missing:
            call(answer.id)
        assert missing.value.code == "response_not_found"
    with pytest.raises(openai.BadRequestError) as refused:
        ask(gateway, previous_response_id=answer.id)
    assert refused.value.code == "previous_response_not_found"
    assert refused.value.param == "previous_response_id"


def test_what_shall_not_be_stored_is_not(start: Start) -> None:
    gateway = start()
    answer = ask(gateway, store=False)
    with pytest.raises(openai.NotFoundError):
        gateway.client().responses.retrieve(answer.id)


def test_a_finished_response_cannot_be_cancelled(start: Start) -> None:
    gateway = start()
    with pytest.raises(openai.BadRequestError) as refused:
        gateway.client().responses.cancel(ask(gateway).id)
    assert refused.value.code == "response_not_cancellable"


def events_of(gateway: Running, **fields: Any) -> list[dict[str, Any]]:
    body = {"model": "fake", "input": "hi", "stream": True, **fields}
    with httpx.stream("POST", f"{gateway.url}/v1/responses", json=body) as answer:
        lines = [line for line in answer.iter_lines() if line and not line.startswith(":")]
    events = [json.loads(line[6:]) for line in lines if line.startswith("data: ")]
    assert [line[7:] for line in lines if line.startswith("event: ")] == [
        event["type"] for event in events
    ]
    return events


def test_a_stream_tells_every_step_in_openais_order(start: Start) -> None:
    gateway = start(BpeEngine(bpe_say("A 東京 café")))
    events = events_of(gateway)
    kinds = [event["type"].removeprefix("response.") for event in events]
    deltas = kinds.count("output_text.delta")
    assert kinds == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        *["output_text.delta"] * deltas,
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    said = "".join(event["delta"] for event in events if event["type"].endswith("text.delta"))
    assert said == events[-1]["response"]["output"][0]["content"][0]["text"] == "A 東京 café"
    assert events[0]["response"]["status"] == "in_progress"
    kept = gateway.client().responses.retrieve(events[-1]["response"]["id"])
    assert kept.to_dict() == OpenAIResponse.construct(**events[-1]["response"]).to_dict()


def test_an_answer_that_is_cut_says_so_whole_and_streamed(start: Start) -> None:
    gateway = start(BpeEngine(bpe_say("one two three four five")))
    answer = ask(gateway, max_output_tokens=3)
    last = events_of(gateway, max_output_tokens=3)[-1]
    assert answer.status == "incomplete"
    assert answer.incomplete_details is not None
    assert answer.incomplete_details.reason == "max_output_tokens"
    assert last["type"] == "response.incomplete"
    assert last["response"]["output"][0]["status"] == "incomplete"


def test_a_failure_in_the_middle_ends_the_stream_as_a_failed_response(start: Start) -> None:
    settings = FakeSettings(failure=EngineLost("gone"), fails_after=2)
    gateway = start(BpeEngine(bpe_say("one two three"), settings))
    events = events_of(gateway)
    assert events[-1]["type"] == "response.failed"
    assert events[-1]["response"]["error"]["code"] == "engine_lost"
    assert [event["sequence_number"] for event in events] == list(range(len(events)))


def with_store(gateway: Running) -> tuple[str, str]:
    client = gateway.client()
    file = client.files.create(file=("lease.txt", LONG.encode()), purpose="user_data")
    return file.id, client.vector_stores.create(file_ids=[file.id]).id


@pytest.mark.parametrize("streams", [False, True])
def test_a_file_search_answers_with_citations_and_shows_its_results_when_asked(
    start: Start, streams: bool
) -> None:
    said = "It was Anna Pavlova [1]."
    gateway = start(BpeEngine(bpe_say(said)), SMALL)
    file_id, store_id = with_store(gateway)
    tool = {"type": "file_search", "vector_store_ids": [store_id], "max_num_results": 3}
    fields = {"input": QUESTION, "tools": [tool], "include": ["file_search_call.results"]}
    if streams:
        events = events_of(gateway, **fields)
        body = events[-1]["response"]
        kinds = [event["type"] for event in events]
        first = kinds.index("response.output_item.added")
        assert kinds[first : first + 5] == [
            "response.output_item.added",
            "response.file_search_call.in_progress",
            "response.file_search_call.searching",
            "response.file_search_call.completed",
            "response.output_item.done",
        ]
        assert "response.output_text.annotation.added" in kinds
    else:
        body = ask(gateway, fields.pop("input"), **fields).to_dict()
    search, message = body["output"]
    assert (search["type"], search["status"]) == ("file_search_call", "completed")
    assert search["queries"] == [QUESTION]
    assert any(FACT in result["text"] for result in search["results"])
    assert len(search["results"]) <= 3
    expected = {
        "type": "file_citation",
        "file_id": file_id,
        "filename": "lease.txt",
        "index": said.index("]") + 1,
    }
    assert message["content"][0]["annotations"] == [expected]
    assert body["ringway"]["route"] == "retrieval"


def test_a_search_is_kept_to_its_filter_and_hidden_unless_asked_for(start: Start) -> None:
    gateway = start(policy=SMALL)
    _, store_id = with_store(gateway)
    tool = {
        "type": "file_search",
        "vector_store_ids": [store_id],
        "filters": {"type": "eq", "key": "year", "value": 2024},
    }
    answer = ask(gateway, QUESTION, tools=[tool], include=["file_search_call.results"])
    assert answer.output[0].to_dict()["results"] == []
    plain = ask(gateway, QUESTION, tools=[{**tool, "filters": None}])
    assert plain.output[0].to_dict().get("results") is None


def test_an_attached_file_is_read(start: Start) -> None:
    engine = BpeEngine()
    gateway = start(engine)
    file = gateway.client().files.create(file=("a.txt", FACT.encode()), purpose="user_data")
    content = [
        {"type": "input_file", "file_id": file.id},
        {"type": "input_text", "text": QUESTION},
    ]
    ask(gateway, [{"role": "user", "content": content}])
    assert FACT in read_by(engine)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"background": True}, "background"),
        ({"reasoning": {"effort": "high"}}, "reasoning.effort"),
        ({"include": ["code_interpreter_call.outputs"]}, "include[0]"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"type": "computer_use_preview"}]}, "tools[0].type"),
        ({"truncation": "auto"}, "truncation"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0].type"),
        ({"text": {"verbosity": "low"}}, "text.verbosity"),
        ({"prompt_cache_retention": "24h"}, "prompt_cache_retention"),
        ({"input": [*HELLO, image(image_url=PIXEL)]}, "input[1].content[1]"),
        ({"instructions": "Be brief.", "input": [image(image_url=PIXEL)]}, "input[0].content[1]"),
        ({"input": [image(file_id="file-1")]}, "input[0].content[1].file_id"),
        (
            {
                "input": [
                    {
                        "type": "function_call_output",
                        "call_id": "c",
                        "output": [{"type": "input_image", "image_url": PIXEL}],
                    }
                ]
            },
            "input[0].output[0].type",
        ),
    ],
)
def test_what_is_not_served_is_refused_by_name(
    start: Start, fields: dict[str, Any], param: str
) -> None:
    body = {"model": "fake", "input": "hi", **fields}
    answer = httpx.post(f"{start().url}/v1/responses", json=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, "unsupported_parameter")
    assert error["param"] == param
    assert param.split("[")[0] in error["message"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": []}, "input"),
        ({"input": 7}, "input"),
        ({"input": [{"role": "robot", "content": "x"}]}, "input[0].role"),
        ({"temperature": 3}, "temperature"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"nonsense": 1}, "nonsense"),
        ({"tool_choice": {"type": "file_search"}}, "tool_choice"),
        ({"text": {"format": {"type": "json_schema", "name": "a"}}}, "text.format.schema"),
    ],
)
def test_what_is_wrong_is_named_as_the_caller_wrote_it(
    start: Start, fields: dict[str, Any], param: str
) -> None:
    body = {"model": "fake", "input": "hi", **fields}
    answer = httpx.post(f"{start().url}/v1/responses", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param
