import json
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.api import Fidelity, GatewayError, InvalidRequest, UnsupportedParameter
from gateway.asks import ToolCall, ToolMode
from gateway.openai.chat import to_ask
from gateway.openai.parse import parse_chat

MISSING = "missing_required_parameter"
USER = {"role": "user", "content": "hi"}


def body(**fields: object) -> bytes:
    return json.dumps({"model": "m", "messages": [USER], **fields}).encode()


def with_message(**fields: object) -> bytes:
    return body(messages=[{**USER, **fields}])


def with_part(**fields: object) -> bytes:
    return with_message(content=[fields])


def function(**fields: object) -> dict[str, object]:
    return {"type": "function", "function": {"name": "f", **fields}}


def named(name: str) -> dict[str, object]:
    return {"type": "function", "function": {"name": name}}


TOOL = function(description="does f", parameters={"type": "object", "properties": {}})
CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}

REFUSALS = [
    (body(temperature=99), "temperature", "decimal_above_max_value"),
    (body(temperature="1"), "temperature", "invalid_type"),
    (body(temperature=True), "temperature", "invalid_type"),
    (body(top_p=0), "top_p", "decimal_below_min_value"),
    (body(max_tokens=0), "max_tokens", "integer_below_min_value"),
    (body(max_tokens=1, max_completion_tokens=2), "max_completion_tokens", "invalid_value"),
    (body(messages=[]), "messages", "array_below_min_length"),
    (body(messages="hi"), "messages", "invalid_type"),
    (body(messages=[3]), "messages[0]", "invalid_type"),
    (with_message(role="king"), "messages[0].role", "invalid_value"),
    (with_message(content=None), "messages[0].content", "invalid_type"),
    (with_message(content=[]), "messages[0].content", "array_below_min_length"),
    (
        with_message(content=[{"type": "text", "text": 4}]),
        "messages[0].content[0].text",
        "invalid_type",
    ),
    (with_message(content=[{"type": "poem"}]), "messages[0].content[0]", "invalid_value"),
    (
        with_message(content=[{"type": "file", "file": {}}]),
        "messages[0].content[0].file.file_id",
        MISSING,
    ),
    (with_message(mood="good"), "messages[0].mood", "unknown_parameter"),
    (body(fidelity="best"), "fidelity", "invalid_value"),
    (body(stop=["a", "b", "c", "d", "e"]), "stop", "array_above_max_length"),
    (body(stop=""), "stop", "empty_string"),
    (body(seed=2**70), "seed", "integer_above_max_value"),
    (body(top_logprobs=3), "top_logprobs", "invalid_value"),
    (body(logprobs=True, top_logprobs=21), "top_logprobs", "integer_above_max_value"),
    (body(logit_bias={"x": 1}), "logit_bias.x", "invalid_value"),
    (body(logit_bias={"5": 101}), "logit_bias.5", "decimal_above_max_value"),
    (body(stream_options={"include_usage": True}), "stream_options", "invalid_value"),
    (body(documents=[{"id": "a", "text": "x"}] * 2), "documents", "invalid_value"),
    (body(documents=[{"id": "a"}]), "documents[0].text", MISSING),
    (body(metadata={"a": 1}), "metadata.a", "invalid_type"),
    (body(metadata={"a" * 65: "b"}), f"metadata.{'a' * 65}", "invalid_value"),
    (body(store="yes"), "store", "invalid_type"),
    (body(reasoning_effort="huge"), "reasoning_effort", "invalid_value"),
    (body(verbosity="loud"), "verbosity", "invalid_value"),
    (
        with_part(type="image_url", image_url={"url": "ftp://x"}),
        "messages[0].content[0].image_url.url",
        "invalid_value",
    ),
    (
        with_message(
            role="system", content=[{"type": "image_url", "image_url": {"url": "https://x"}}]
        ),
        "messages[0].content[0]",
        "invalid_value",
    ),
    (body(colour="red"), "colour", "unknown_parameter"),
    (body(n=0), "n", "integer_below_min_value"),
    (body(n=True), "n", "invalid_type"),
    (body(tools=[TOOL, TOOL]), "tools", "invalid_value"),
    (body(tools=[{"type": "function"}]), "tools[0].function", MISSING),
    (body(tools=[function(name="a b")]), "tools[0].function.name", "invalid_value"),
    (body(tools=[function(strict="yes")]), "tools[0].function.strict", "invalid_type"),
    (body(tool_choice="required"), "tool_choice", "invalid_value"),
    (body(tools=[TOOL], tool_choice="always"), "tool_choice", "invalid_value"),
    (body(tools=[TOOL], tool_choice=named("g")), "tool_choice", "invalid_value"),
    (body(parallel_tool_calls=True), "parallel_tool_calls", "invalid_value"),
    (body(response_format={"type": "xml"}), "response_format", "invalid_value"),
    (body(response_format={"type": "json_schema"}), "response_format.json_schema", MISSING),
    (
        body(response_format={"type": "json_schema", "json_schema": {"schema": {}}}),
        "response_format.json_schema.name",
        MISSING,
    ),
    (with_message(role="tool"), "messages[0].tool_call_id", "invalid_value"),
    (with_message(tool_call_id="x"), "messages[0].tool_call_id", "invalid_value"),
    (with_message(tool_calls=[CALL]), "messages[0].tool_calls", "invalid_value"),
    (
        with_message(role="assistant", tool_calls=[{"id": "x"}]),
        "messages[0].tool_calls[0].function",
        MISSING,
    ),
    (b'{"messages": [{"role": "user", "content": "x"}]}', "model", MISSING),
]


@pytest.mark.parametrize(("raw", "param", "code"), REFUSALS)
def test_what_is_wrong_is_named(raw: bytes, param: str, code: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_chat(raw)
    assert (caught.value.param, caught.value.code) == (param, code)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"a": NaN}',
        b'{"a": "\xff"}',
        b'{"model": "m", "messages": [{"role": "user", "content": "\\ud800"}]}',
        b"[" * 100_000,
        b'{"seed": ' + b"9" * 5000 + b"}",
    ],
)
def test_what_is_no_json_object_is_refused(raw: bytes) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_chat(raw)
    assert caught.value.code == "invalid_json"


@pytest.mark.parametrize(
    ("raw", "param"),
    [
        (body(tools=[{"type": "custom", "custom": {"name": "x"}}]), "tools[0].type"),
        (body(tool_choice={"type": "allowed_tools"}), "tool_choice.type"),
        (body(web_search_options={}), "web_search_options"),
        (body(audio={}), "audio"),
        (body(modalities=["text", "audio"]), "modalities"),
        (body(prediction={}), "prediction"),
        (body(functions=[]), "functions"),
        (with_message(role="function"), "messages[0].role"),
        (with_part(type="input_audio", input_audio={}), "messages[0].content[0].type"),
        (
            with_part(type="text", text="a", prompt_cache_breakpoint={"mode": "explicit"}),
            "messages[0].content[0].prompt_cache_breakpoint",
        ),
        (
            with_message(content=[{"type": "file", "file": {"file_data": "x"}}]),
            "messages[0].content[0].file.file_data",
        ),
    ],
)
def test_what_is_not_served_is_refused_by_name(raw: bytes, param: str) -> None:
    with pytest.raises(UnsupportedParameter) as caught:
        parse_chat(raw)
    assert caught.value.param == param


def test_neutral_values_and_echoed_messages_are_accepted() -> None:
    echoed: dict[str, object] = {
        "role": "assistant",
        "content": "hello",
        "refusal": None,
        "annotations": [],
        "audio": None,
        "function_call": None,
        "tool_calls": None,
    }
    parse_chat(
        body(
            messages=[USER, echoed, USER],
            n=1,
            tools=None,
            tool_choice="none",
            parallel_tool_calls=None,
            response_format={"type": "text"},
            modalities=["text"],
            store=False,
            user="u",
            metadata={"a": "b"},
            prompt_cache_key="k",
            service_tier="flex",
        )
    )


def test_a_body_becomes_an_ask() -> None:
    parts = [
        {"type": "text", "text": "a"},
        {"type": "file", "file": {"file_id": "f"}},
        {"type": "text", "text": "b"},
    ]
    raw = body(
        messages=[{"role": "user", "content": parts}],
        fidelity="full",
        documents=[{"id": "d", "text": "t"}],
        max_tokens=7,
        stop="x",
        seed=-1,
        logprobs=True,
        logit_bias={"5": 1},
        service_tier="auto",
    )
    ask = to_ask(parse_chat(raw), seed=3)
    assert (ask.turns[0].text, ask.turns[0].file_ids) == ("a\nb", ("f",))
    assert (ask.fidelity, ask.allow_fallback) == (Fidelity.FULL, False)
    assert (ask.max_new_tokens, ask.stop, ask.service_tier) == (7, ("x",), "default")
    assert (ask.sampling.seed, ask.sampling.top_logprobs) == (2**63 - 1, 0)
    assert ask.sampling.logit_bias == {5: 1.0}
    assert to_ask(parse_chat(body()), seed=3).sampling.seed == 3
    assert to_ask(parse_chat(body(fidelity="full", allow_fallback=True)), seed=3).allow_fallback


def test_tools_calls_and_formats_become_values() -> None:
    called = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    result = {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "7"}]}
    raw = body(
        messages=[USER, called, result],
        n=3,
        tools=[TOOL, function(name="g", strict=True)],
        tool_choice=named("g"),
        response_format={
            "type": "json_schema",
            "json_schema": {"name": "s", "schema": {"type": "object"}, "strict": True},
        },
    )
    ask = to_ask(parse_chat(raw), seed=3)
    assert [turn.role for turn in ask.turns] == ["user", "assistant", "tool"]
    assert ask.turns[1].tool_calls == (ToolCall(id="call_1", name="f", arguments="{}"),)
    assert (ask.turns[2].tool_call_id, ask.turns[2].text) == ("call_1", "7")
    assert (ask.n, ask.tools.forced, ask.tools.mode) == (3, "g", ToolMode.REQUIRED)
    assert ask.tools.offered[0].spec == TOOL
    assert [tool.name for tool in ask.tools.callable] == ["g"]
    assert ask.tools.callable[0].strict
    assert ask.json_format is not None
    assert ask.json_format.schema == {"type": "object"}
    nothing = to_ask(parse_chat(body(tools=[TOOL], tool_choice="none")), seed=3)
    assert nothing.tools.callable == ()


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5),
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
NAMES = st.sampled_from(
    ["messages", "temperature", "stop", "tools", "n", "logit_bias", "tool_choice", "x"]
)


@given(st.dictionaries(NAMES, JSON, max_size=5))
@settings(max_examples=200)
def test_any_json_is_accepted_or_refused_on_purpose(fields: dict[str, object]) -> None:
    with suppress(GatewayError):
        parse_chat(json.dumps({"model": "m", **fields}).encode())
