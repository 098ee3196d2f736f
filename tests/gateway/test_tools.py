"""Tools through the template and back, with the official client."""

import json
from dataclasses import replace
from typing import Any

import openai
import pytest
from pydantic import BaseModel

from engines.api import EngineInfo, GrammarKind, TokenizerFiles
from engines.fake import CHATML, FakeEngine, Script, byte_ids, byte_tokenizer, obey, say
from engines.grammar import Grammars
from gateway.asks import Tools
from gateway.openai.chat_tools import ToolFields, tools_of
from gateway.tools.grammar import grammar_of
from gateway.tools.syntax import HERMES
from tests.gateway.fakes import BpeEngine, Start, bpe_say, trained

LOOK: Any = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Look into a drawer.",
        "parameters": {
            "type": "object",
            "properties": {
                "drawer": {"$ref": "#/$defs/drawer"},
                "deep": {"type": "boolean"},
            },
            "required": ["drawer", "deep"],
            "additionalProperties": False,
            "$defs": {"drawer": {"enum": ["top", "<|im_end|>"]}},
        },
    },
}
PING = {"type": "function", "function": {"name": "ping"}}
MESSAGES: Any = [{"role": "user", "content": "Where is it?"}]
CALL = '<tool_call>\n{"name": "look", "arguments": {"drawer": "top", "deep": true}}\n</tool_call>'

KNOWING = (
    "{% if tools %}TOOLS {{ tools | tojson }}\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% for c in m.tool_calls or [] %}[TOOL_CALLS] {{ c.id }}/{{ c.function.name }}/"
    "{{ c.function.arguments | tojson }}{% endfor %}"
    "{% if m.tool_call_id %}for {{ m.tool_call_id }}{% endif %}<|im_end|>\n{% endfor %}"
)
QWEN = KNOWING.replace("[TOOL_CALLS]", "<tool_call>")
LLAMA = KNOWING.replace("[TOOL_CALLS]", '"parameters"')


class Taught(FakeEngine):
    """The fake engine with another template."""

    def __init__(self, template: str, script: Script) -> None:
        super().__init__(script)
        digest = f"{hash(template)}"
        self._files = replace(byte_tokenizer(), chat_template=template, digest=digest)

    async def info(self) -> EngineInfo:
        return replace(await super().info(), tokenizer_digest=self._files.digest)

    async def tokenizer(self) -> TokenizerFiles:
        return self._files


def prompt_of(engine: FakeEngine) -> str:
    ids = [min(i, 255) for i in engine.requests[-1].prompt_ids if i < 256]
    return bytes(ids).decode()


def create(start: Start, engine: FakeEngine, **fields: object) -> Any:
    body = {"model": "fake", "messages": MESSAGES, "tools": [LOOK, PING], "seed": 0, **fields}
    client: Any = start(engine).client()
    return client.chat.completions.create(**body)


def strict_tool(parameters: dict[str, object]) -> dict[str, object]:
    function = {"name": "strict", "strict": True, "parameters": parameters}
    return {"type": "function", "function": function}


def wanted(schema: dict[str, object], *, strict: bool = False) -> dict[str, object]:
    described = {"name": "wanted", "schema": schema, "strict": strict}
    return {"type": "json_schema", "json_schema": described}


def test_a_template_without_tools_is_taught_and_its_answer_heard(start: Start) -> None:
    ping = '<tool_call>\n{"name": "ping", "arguments": {}}\n</tool_call>'
    engine = BpeEngine(bpe_say(f"Let me see.\n{CALL}\n{ping}"))
    choice = create(start, engine).choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "Let me see."
    first, second = choice.message.tool_calls
    assert (first.function.name, second.function.name) == ("look", "ping")
    assert json.loads(first.function.arguments) == {"drawer": "top", "deep": True}
    assert first.id != second.id
    prompt = trained().decode(list(engine.requests[0].prompt_ids), skip_special_tokens=False)
    assert prompt.startswith("<|im_start|>system\n# Tools")
    assert '"name": "look"' in prompt
    assert engine.requests[0].grammar is None


def test_a_call_and_its_result_come_back_to_a_template_without_tools(start: Start) -> None:
    engine = BpeEngine(bpe_say("It is there."))
    client: Any = start(engine).client()
    asked = BpeEngine(bpe_say(CALL))
    message = create(start, asked).choices[0].message
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "keys"}
    answer = client.chat.completions.create(
        model="fake",
        messages=[*MESSAGES, message.model_dump(), result],
        tools=[LOOK],
    )
    assert answer.choices[0].message.content == "It is there."
    prompt = trained().decode(list(engine.requests[0].prompt_ids), skip_special_tokens=False)
    assert '<tool_call>\n{"name": "look", "arguments": {"drawer": "top", "deep": true}}' in prompt
    assert "<|im_start|>user\n<tool_response>\nkeys\n</tool_response>" in prompt


def test_a_template_that_knows_tools_gets_them_and_objects_for_arguments(start: Start) -> None:
    engine = Taught(QWEN, say("fine"))
    called = {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"a":1}'}}
        ],
    }
    result = {"role": "tool", "tool_call_id": "c1", "content": "keys"}
    answer = create(start, engine, messages=[*MESSAGES, called, result])
    assert answer.choices[0].message.content == "fine"
    assert answer.choices[0].message.tool_calls is None
    prompt = prompt_of(engine)
    assert prompt.startswith('TOOLS [{"type": "function", "function": {"name": "look"')
    assert '<tool_call> c1/look/{"a": 1}' in prompt
    assert "tool\nkeysfor c1" in prompt
    # What a caller writes is data: the special token in the tool's schema closed no turn.
    assert list(engine.requests[0].prompt_ids).count(257) == prompt.count("\n") - 4


def test_tool_choice_none_offers_nothing(start: Start) -> None:
    engine = BpeEngine(bpe_say(CALL))
    choice = create(start, engine, tool_choice="none").choices[0]
    assert choice.message.content == CALL
    assert choice.finish_reason == "stop"
    prompt = trained().decode(list(engine.requests[0].prompt_ids), skip_special_tokens=False)
    assert "look" not in prompt


@pytest.mark.parametrize("template", [CHATML, QWEN, LLAMA, KNOWING])
@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "look"}}])
def test_a_call_that_must_come_comes_and_holds_to_its_schema(
    start: Start, template: str, choice: object
) -> None:
    answer = create(start, Taught(template, obey(1)), tool_choice=choice, max_tokens=1500, n=3)
    for told in answer.choices:
        assert told.finish_reason == "tool_calls"
        assert told.message.tool_calls
        for call in told.message.tool_calls:
            arguments = json.loads(call.function.arguments)
            if call.function.name == "ping":
                assert choice == "required"
                assert arguments == {}
            else:
                assert arguments["drawer"] in ("top", "<|im_end|>")
                assert isinstance(arguments["deep"], bool)
        if isinstance(choice, dict):
            assert [one.function.name for one in told.message.tool_calls] == ["look"]


def test_without_parallel_calls_the_answer_ends_with_the_first(start: Start) -> None:
    engine = BpeEngine(bpe_say(f"{CALL}\n{CALL}\n and more"))
    choice = create(start, engine, parallel_tool_calls=False).choices[0]
    assert len(choice.message.tool_calls) == 1
    assert choice.finish_reason == "tool_calls"
    assert engine.aborted


class Look(BaseModel):
    """Look into a drawer."""

    drawer: str
    deep: bool


def test_the_client_s_stream_helper_hears_strict_calls(start: Start) -> None:
    tool = openai.pydantic_function_tool(Look, name="look")
    engine = FakeEngine(obey(5))
    client: Any = start(engine).client()
    with client.chat.completions.stream(
        model="fake",
        messages=MESSAGES,
        tools=[tool],
        tool_choice="required",
        parallel_tool_calls=False,
    ) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_completion()
    assert "tool_calls.function.arguments.delta" in kinds
    assert kinds.count("tool_calls.function.arguments.delta") > 2
    [call] = final.choices[0].message.tool_calls or []
    assert isinstance(call.function.parsed_arguments, Look)
    assert engine.requests[0].grammar is not None
    assert engine.requests[0].grammar.kind is GrammarKind.LARK


def test_strict_tools_under_auto_leave_text_free_and_hold_calls(start: Start) -> None:
    strict = {**LOOK, "function": {**LOOK["function"], "strict": True}}
    answer = create(start, FakeEngine(obey(1)), tools=[strict], max_tokens=300, n=8)
    assert "stop" in {one.finish_reason for one in answer.choices}
    said = '<tool_call>{"name": "look", "arguments": {"drawer": "top", "deep": '
    [tool] = tools_of(ToolFields.model_validate({"tools": [strict]})).offered
    grammar = grammar_of(Tools(offered=(tool,)), None, HERMES, {})
    assert grammar is not None
    follower = Grammars(byte_tokenizer(), 258).follower(grammar)
    mask = follower.allowed(byte_ids(f"I look. {said}"))
    assert mask is not None
    assert {i for i in b"tf0{," if mask[i // 8] >> i % 8 & 1} == set(b"tf")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [strict_tool({"type": "wat"})]}, "tools"),
        ({"response_format": wanted({"type": "wat"})}, "response_format"),
        ({"response_format": wanted({"not": {}}, strict=True)}, "response_format"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_schema_that_cannot_be_held_is_refused_by_name(
    start: Start, fields: dict[str, object], param: str, stream: bool
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        list(create(start, BpeEngine(), **fields, stream=stream))
    assert caught.value.param == param
    assert "schema" in str(caught.value.code) or "parameters" in str(caught.value.code)


class Deal(BaseModel):
    party: str
    signed: bool
    years: list[int]


def test_the_client_s_parse_gets_the_model_it_asked_for(start: Start) -> None:
    answer = (
        start(FakeEngine(obey(2)))
        .client()
        .chat.completions.parse(
            model="fake",
            messages=MESSAGES,
            response_format=Deal,
            max_tokens=2000,
            n=4,
            seed=0,
        )
    )
    assert all(isinstance(one.message.parsed, Deal) for one in answer.choices)


def test_any_object_is_an_object(start: Start) -> None:
    answer = create(
        start,
        FakeEngine(obey(1)),
        tools=[],
        response_format={"type": "json_object"},
        max_tokens=3000,
    )
    assert isinstance(json.loads(answer.choices[0].message.content), dict)


def test_beside_tools_the_answer_is_json_or_a_call(start: Start) -> None:
    fields: dict[str, Any] = {"response_format": wanted({"type": "boolean"}), "n": 8}
    answer = create(start, FakeEngine(obey(1)), **fields)
    for choice in answer.choices:
        if choice.message.tool_calls:
            json.loads(choice.message.tool_calls[0].function.arguments)
        else:
            assert choice.message.content in ("true", "false")
    assert {one.finish_reason for one in answer.choices} == {"stop", "tool_calls"}
