"""Engines that read chat: what they are asked, and what becomes of their text and calls."""

import json
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from typing import Any

import openai
import pytest

from engines.api import (
    AnswerEndEvent,
    EngineInfo,
    Event,
    FinishEvent,
    FinishReason,
    GenerateRequest,
    Reads,
    TextEvent,
    ToolCallEvent,
)
from ingest.fake import FakeLibrary
from tests.gateway.fakes import BpeEngine, Start
from tests.gateway.test_tools import LOOK, MESSAGES, wanted


class Chatty(BpeEngine):
    """Plays back text and calls, as an upstream does."""

    def __init__(self, said: Sequence[Event], reason: FinishReason = FinishReason.STOP) -> None:
        super().__init__()
        self._said = said
        self._reason = reason

    async def info(self) -> EngineInfo:
        return replace(await super().info(), reads=Reads.CHAT)

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Event, None]:
        self.requests.append(request)
        for event in self._said:
            yield event
        yield FinishEvent(
            reason=self._reason,
            prompt_tokens=7,
            cached_tokens=2,
            completion_tokens=3,
            queue_s=0.0,
            prefill_s=0.0,
            decode_s=0.0,
        )


CALLS = (
    TextEvent("I look."),
    ToolCallEvent(call=0, id="up_1", name="look", arguments=""),
    ToolCallEvent(call=0, arguments='{"drawer": '),
    ToolCallEvent(call=1, id="up_2", name="look", arguments="{}"),
    ToolCallEvent(call=0, arguments='"top"}'),
)


@pytest.mark.parametrize("stream", [False, True])
def test_text_and_calls_are_passed_on_with_their_ids(start: Start, stream: bool) -> None:
    engine = Chatty(CALLS, FinishReason.TOOL_CALLS)
    client: Any = start(engine).client()
    with client.chat.completions.stream(
        model="fake",
        messages=MESSAGES,
        tools=[LOOK],
    ) as heard:
        list(heard)
        final = heard.get_final_completion()
    if not stream:
        final = client.chat.completions.create(model="fake", messages=MESSAGES, tools=[LOOK])
    [choice] = final.choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "I look."
    calls = choice.message.tool_calls or []
    assert [(c.id, c.function.arguments) for c in calls] == [
        ("up_1", '{"drawer": "top"}'),
        ("up_2", "{}"),
    ]


def test_it_is_asked_with_messages_tools_and_format(start: Start) -> None:
    engine = Chatty([TextEvent("true")])
    library = FakeLibrary()
    gateway = start(engine, None, library)
    client: Any = gateway.client()
    file = client.files.create(file=("a.txt", b"The keys are gone."), purpose="user_data")
    called = {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        ],
    }
    asked = [
        {"type": "file", "file": {"file_id": file.id}},
        {"type": "text", "text": "Where <tool_call> is it?"},
    ]
    client.chat.completions.create(
        model="fake",
        messages=[
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": asked},
            called,
            {"role": "tool", "tool_call_id": "c1", "content": "keys"},
        ],
        tools=[LOOK],
        tool_choice="required",
        parallel_tool_calls=False,
        response_format=wanted({"type": "boolean"}),
        n=2,
        temperature=0.5,
    )
    [request] = engine.requests
    assert (request.n, request.grammar, request.sampling.temperature) == (2, None, 0.5)
    chat = json.loads(json.dumps(request.chat))
    developer, user, assistant, tool = chat["messages"]
    assert developer == {"role": "developer", "content": "Be brief."}
    assert "The keys are gone." in user["content"]
    assert user["content"].endswith("Where <tool_call> is it?")
    assert assistant == called
    assert tool == {"role": "tool", "tool_call_id": "c1", "content": "keys"}
    assert chat["tools"] == [LOOK]
    assert (chat["tool_choice"], chat["parallel_tool_calls"]) == ("required", False)
    assert chat["response_format"] == wanted({"type": "boolean"})


def test_several_choices_are_told_apart_and_stop_strings_hold(start: Start) -> None:
    events: list[Event] = [
        TextEvent("one", 0),
        TextEvent("two", 1),
        TextEvent(" STOP one", 0),
        TextEvent(" more", 1),
        AnswerEndEvent(index=1, reason=FinishReason.CONTENT_FILTER, completion_tokens=2),
        AnswerEndEvent(index=0, reason=FinishReason.LENGTH, completion_tokens=2),
    ]
    client: Any = start(Chatty(events)).client()
    answer = client.chat.completions.create(model="fake", messages=MESSAGES, n=2, stop="STOP")
    assert [(c.message.content, c.finish_reason) for c in answer.choices] == [
        ("one ", "stop"),
        ("two more", "content_filter"),
    ]


def test_a_raw_prompt_is_refused(start: Start) -> None:
    client = start(Chatty([TextEvent("x")])).client()
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model="fake", prompt="x")
    assert caught.value.code == "unsupported_model"
