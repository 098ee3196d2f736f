"""Answers' texts to tool calls, in every syntax and however they are cut."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.tools.parser import CallParser, CallPiece
from gateway.tools.syntax import HERMES, LLAMA, MISTRAL, CallSyntax, spoken_id, syntax_of

NAMES = ("look", "add")
LOOK = '{"name": "look", "arguments": {"at": "a \\"}<b> é", "n": [1, {"x": {}}]}}'
ARGUMENTS = '{"at": "a \\"}<b> é", "n": [1, {"x": {}}]}'
ADD = '{"name": "add", "arguments": {}}'
TWO = [("look", ARGUMENTS), ("add", "{}")]

HEARD: list[tuple[CallSyntax, str, str, list[tuple[str, str]]]] = [
    (HERMES, f"<tool_call>\n{LOOK}\n</tool_call>", "", TWO[:1]),
    (HERMES, f"<tool_call>{LOOK}</tool_call>\n<tool_call>\n{ADD}\n</tool_call>\n", "", TWO),
    (HERMES, f"I look.\n\n<tool_call>\n{LOOK}\n</tool_call>", "I look.", TWO[:1]),
    (HERMES, f"<tool_call>\n{LOOK}", "", TWO[:1]),
    (HERMES, f"<tool_call>\n{LOOK}\n</tool_c", "", TWO[:1]),
    (LLAMA, '{"name": "look", "parameters": ' + ARGUMENTS + "}", "", TWO[:1]),
    (LLAMA, "<|python_tag|>" + LOOK + "; " + ADD, "", TWO),
    (MISTRAL, f"[TOOL_CALLS] [{LOOK}, {ADD}]", "", TWO),
    (MISTRAL, f"[TOOL_CALLS][{LOOK}]", "", TWO[:1]),
    (
        HERMES,
        '<tool_call>{"arguments": {"a": 1}, "name": "add"}</tool_call>',
        "",
        [("add", '{"a": 1}')],
    ),
    (
        HERMES,
        '<tool_call>{"name": "add", "arguments": "{\\"a\\": 1}"}</tool_call>',
        "",
        [("add", '{"a": 1}')],
    ),
    (HERMES, '<tool_call>{"name": "add"}</tool_call>', "", [("add", "{}")]),
]

KEPT: list[tuple[CallSyntax, str]] = [
    (HERMES, "no call at all < tool_call> "),
    (HERMES, "  \n"),
    (HERMES, "<tool_call>"),
    (HERMES, "<tool_call></tool_call>"),
    (HERMES, '<tool_call>\n{"name": "look", "arguments": {"at": }}\n</tool_call>'),
    (HERMES, '<tool_call>\n{"name": "look", "arguments": {"at": 1'),
    (HERMES, '<tool_call>{"name": "unknown", "arguments": {}}</tool_call> and more'),
    (HERMES, '<tool_call>{"name": "look", "arguments": [1]}</tool_call>'),
    (HERMES, '<tool_call>{"name": ["look"], "arguments": {}}</tool_call>'),
    (HERMES, "<tool_call>look()</tool_call>"),
    (HERMES, "<tool_call>{" + '"a":{' * 3000),
    (LLAMA, '{"answer": 7}'),
    (LLAMA, "The answer: " + LOOK),
    (LLAMA, "<|python_tag|>print(7)"),
    (MISTRAL, "[TOOL_CALLS] none"),
    (MISTRAL, LOOK),
]


def hear(parser: CallParser, pieces: list[str]) -> tuple[str, list[tuple[str, str]]]:
    """Text, and calls by their pieces."""
    parts = [part for piece in pieces for part in parser.push(piece)] + parser.close()
    text = "".join(part for part in parts if isinstance(part, str))
    calls: dict[int, tuple[str, str]] = {}
    for part in parts:
        if isinstance(part, CallPiece):
            assert (part.call in calls) == (part.name is None)
            name, arguments = calls.get(part.call, (part.name or "", ""))
            calls[part.call] = (name, arguments + part.arguments)
    return text, [calls[i] for i in sorted(calls)]


def cuts(text: str, at: list[int]) -> list[str]:
    borders = [0, *sorted(i % (len(text) + 1) for i in at), len(text)]
    return [text[a:b] for a, b in pairwise(borders)]


@pytest.mark.parametrize("live", [False, True])
@pytest.mark.parametrize(("syntax", "said", "text", "calls"), HEARD)
def test_calls_are_heard_and_text_beside_them_stays(
    syntax: CallSyntax, said: str, text: str, calls: list[tuple[str, str]], live: bool
) -> None:
    for pieces in ([said], list(said)):
        heard = hear(CallParser(syntax, NAMES, live=live), pieces)
        assert heard == (text, calls)


@pytest.mark.parametrize(("syntax", "said"), KEPT)
def test_what_is_no_call_is_text_to_the_last_character(syntax: CallSyntax, said: str) -> None:
    for pieces in ([said], list(said)):
        assert hear(CallParser(syntax, NAMES), pieces) == (said, [])


def test_live_arguments_are_passed_on_as_they_come() -> None:
    parser = CallParser(HERMES, NAMES, live=True)
    parts = [
        parser.push(piece)
        for piece in ("<tool_call>", '{"name": "look", "arguments"', ': {"at"', ": 1}}")
    ]
    assert parts[:2] == [[], []]
    assert parts[2] == [
        CallPiece(call=0, name="look", arguments=""),
        CallPiece(call=0, arguments='{"at"'),
    ]
    assert parts[3] == [CallPiece(call=0, arguments=": 1}")]


def test_a_live_call_that_is_cut_keeps_what_was_said() -> None:
    said = '<tool_call>{"name": "look", "arguments": {"at": "Lis'
    assert hear(CallParser(HERMES, NAMES, live=True), [said]) == ("", [("look", '{"at": "Lis')])


@given(
    syntax=st.sampled_from([HERMES, LLAMA, MISTRAL]),
    parts=st.lists(
        st.sampled_from(
            [
                "<tool_call>",
                "</tool_call>",
                "[TOOL_CALLS]",
                "<|python_tag|>",
                LOOK,
                ADD,
                "[",
                "]",
                ",",
                ";",
                " ",
                "\n",
                "{",
                "}",
                '"',
                "\\",
                "text",
                "<tool",
                "é",
            ]
        ),
        max_size=8,
    ),
    at=st.lists(st.integers(0, 400), max_size=5),
)
def test_how_an_answer_is_cut_changes_nothing_and_nothing_is_lost(
    syntax: CallSyntax, parts: list[str], at: list[int]
) -> None:
    said = "".join(parts)
    text, calls = hear(CallParser(syntax, NAMES), [said])
    assert hear(CallParser(syntax, NAMES), cuts(said, at)) == (text, calls)
    if not calls:
        assert text == said
    for _, arguments in calls:
        json.loads(arguments)
    for word in ("text", "é"):
        heard = text.count(word) + sum(arguments.count(word) for _, arguments in calls)
        assert heard == said.count(word)


def test_the_template_s_own_words_choose_the_syntax() -> None:
    assert syntax_of("{{ messages }}") is HERMES
    assert syntax_of("{% if tools %}<tool_call>{% endif %}") is HERMES
    assert syntax_of("{% if tools %}[TOOL_CALLS]{% endif %}") is MISTRAL
    assert syntax_of('{% if tools %}{"name": n, "parameters": p}{% endif %}') is LLAMA


def test_mistral_gets_ids_of_nine_letters() -> None:
    assert spoken_id("call_abc", HERMES) == "call_abc"
    assert spoken_id("a1B2c3D4e", MISTRAL) == "a1B2c3D4e"
    assert len(spoken_id("call_abc", MISTRAL)) == 9
    assert spoken_id("call_abc", MISTRAL).isalnum()
