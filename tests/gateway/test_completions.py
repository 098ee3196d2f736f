"""/v1/completions: raw prompts, as the official client sends them."""

from typing import Any

import httpx
import openai
import pytest

from engines.api import Attention, GenerateRequest
from engines.fake import FakeSettings
from gateway.policy import AutoPolicy, Policy, RetrievalPolicy
from tests.gateway.fakes import (
    BpeEngine,
    Start,
    bpe_say,
    id_of,
    ids_of,
    paragraphs,
    tokenizer_files,
    trained,
)

TEXT = "the quick brown fox"


def echo(request: GenerateRequest) -> list[int]:
    """Answers with its own prompt."""
    return [*request.prompt_ids, *tokenizer_files().stop_ids]


def create(start: Start, engine: BpeEngine, prompt: object, **fields: object) -> Any:
    client: Any = start(engine).client()
    return client.completions.create(model="fake", prompt=prompt, **fields)


def test_a_prompt_is_read_as_it_stands_and_counted_exactly(start: Start) -> None:
    engine = BpeEngine(bpe_say(" jumps."))
    answer = create(start, engine, f"<|im_start|>user\n{TEXT}")
    [request] = engine.requests
    assert list(request.prompt_ids) == [id_of("<|im_start|>"), *ids_of(f"user\n{TEXT}")]
    assert (answer.object, answer.choices[0].text) == ("text_completion", " jumps.")
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.prompt_tokens == len(request.prompt_ids)
    assert answer.model_extra["ringway"]["route"] == "full"
    assert answer.id.startswith("cmpl-")


def test_sixteen_tokens_are_said_unless_more_are_asked_for(start: Start) -> None:
    answer = create(start, BpeEngine(bpe_say("the fox " * 30)), TEXT)
    assert answer.usage.completion_tokens == 16
    assert answer.choices[0].finish_reason == "length"


@pytest.mark.parametrize(
    "prompt",
    [["one fox", "the dog"], [ids_of("one fox"), ids_of("the dog")]],
)
def test_several_prompts_are_answered_in_order(start: Start, prompt: object) -> None:
    engine = BpeEngine(echo)
    answer = create(start, engine, prompt, n=2, echo=True)
    assert [one.index for one in answer.choices] == [0, 1, 2, 3]
    assert [one.text for one in answer.choices] == [2 * "one fox"] * 2 + [2 * "the dog"] * 2
    num = len(ids_of("one fox")), len(ids_of("the dog"))
    assert answer.usage.prompt_tokens == sum(num)
    assert answer.usage.completion_tokens == 2 * sum(num)


def test_a_list_of_ids_is_one_prompt(start: Start) -> None:
    engine = BpeEngine()
    create(start, engine, ids_of(TEXT))
    assert list(engine.requests[0].prompt_ids) == ids_of(TEXT)


def test_logprobs_have_the_shape_of_old(start: Start) -> None:
    told = create(start, BpeEngine(bpe_say("the fox")), TEXT, logprobs=2).choices[0].logprobs
    assert "".join(told.tokens) == "the fox"
    assert told.text_offset == [
        0,
        *[len("".join(told.tokens[:i])) for i in range(1, len(told.tokens))],
    ]
    assert set(told.token_logprobs) == {0.0}
    assert all(len(top) == 2 for top in told.top_logprobs)


def test_a_stream_says_the_same(start: Start) -> None:
    fields: dict[str, Any] = {
        "stream": True,
        "stream_options": {"include_usage": True},
        "n": 2,
        "echo": True,
    }
    chunks = list(create(start, BpeEngine(echo), ["one fox", "the dog"], **fields))
    told = [one for chunk in chunks for one in chunk.choices]
    texts = ["".join(one.text for one in told if one.index == i) for i in range(4)]
    assert texts == [2 * "one fox"] * 2 + [2 * "the dog"] * 2
    assert sorted(one.index for one in told if one.finish_reason == "stop") == [0, 1, 2, 3]
    assert chunks[-1].usage.completion_tokens == 2 * len(ids_of("one fox") + ids_of("the dog"))
    assert "ringway" in chunks[0].model_extra
    assert "ringway" in chunks[-1].model_extra


def test_headers_are_those_of_chat(start: Start) -> None:
    gateway = start(BpeEngine())
    for stream in (False, True):
        body = {"model": "fake", "prompt": TEXT, "stream": stream}
        answer = httpx.post(f"{gateway.url}/v1/completions", json=body)
        assert answer.headers["x-ringway-route"] == "full"
        assert int(answer.headers["x-ringway-prompt-tokens"]) == len(ids_of(TEXT))


def test_a_long_prompt_is_attended_to_in_chunks(start: Start) -> None:
    policy = Policy(
        auto=AutoPolicy(full_max_tokens=200, hierarchical_max_tokens=300),
        retrieval=RetrievalPolicy(inline_min_chars=400),
    )
    engine = BpeEngine(settings=FakeSettings())
    gateway = start(engine, policy)
    text = paragraphs(["Anna signed."], 40) + "\n\nWho signed?"
    answer = gateway.client().completions.create(model="fake", prompt=text)
    [request] = engine.requests
    assert request.attention is Attention.HIERARCHICAL
    assert list(request.prompt_ids) == ids_of(text)
    asked = trained().decode(list(request.prompt_ids[request.question_start :]))
    assert asked.strip() == "Who signed?"
    assert (answer.model_extra or {})["ringway"]["requested"] == "auto"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"best_of": 2}, "best_of"),
        ({"suffix": "x"}, "suffix"),
        ({"echo": True, "logprobs": 1}, "echo"),
        ({"prompt": []}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": [1, 10**6]}, "prompt"),
        ({"prompt": [["a"]]}, "prompt[0][0]"),
        ({"prompt": None}, "prompt"),
        ({"logprobs": True}, "logprobs"),
        ({"fidelity": "retrieval"}, "fidelity"),
        ({"messages": []}, "messages"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
    ],
)
def test_what_is_wrong_or_not_served_is_named(
    start: Start, fields: dict[str, object], param: str
) -> None:
    body = {"model": "fake", "prompt": TEXT, **fields}
    answer = httpx.post(f"{start(BpeEngine()).url}/v1/completions", json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


def test_a_prompt_over_every_limit_says_how_many_tokens_it_has(start: Start) -> None:
    small = FakeSettings(context_tokens={Attention.FULL: 20, Attention.HIERARCHICAL: 20})
    with pytest.raises(openai.BadRequestError) as caught:
        create(start, BpeEngine(settings=small), "the fox " * 20)
    assert caught.value.code == "context_length_exceeded"
