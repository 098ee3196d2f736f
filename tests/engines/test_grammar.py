"""Grammars over the fake engine's tokens: what they allow, and what is refused."""

import json
import re
import subprocess
import sys
from array import array
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.api import GenerateRequest as Request
from engines.api import Grammar, GrammarKind, GrammarRefused
from engines.fake import END_ID, byte_ids, byte_tokenizer, obey
from engines.grammar import MAX_DEPTH, MAX_SOURCE_BYTES, Grammars

pytest.importorskip("llguidance")

GRAMMARS = Grammars(byte_tokenizer(), END_ID + 1)
Schema = Mapping[str, Any]


def schema_grammar(schema: Schema) -> Grammar:
    return Grammar(GrammarKind.JSON_SCHEMA, json.dumps(schema))


def allowed_after(grammar: Grammar, text: str) -> set[int]:
    mask = GRAMMARS.follower(grammar).allowed(byte_ids(text))
    assert mask is not None
    return {i for i in range(END_ID + 1) if mask[i // 8] >> i % 8 & 1}


def bounded() -> st.SearchStrategy[Schema]:
    """Schemas whose every answer is short."""
    leaves = st.one_of(
        st.just({"type": "boolean"}),
        st.just({"type": "null"}),
        st.builds(
            lambda low, span: {"type": "integer", "minimum": low, "maximum": low + span},
            st.integers(-99, 99),
            st.integers(0, 50),
        ),
        st.builds(lambda n: {"type": "string", "maxLength": n}, st.integers(0, 6)),
        st.builds(
            lambda texts: {"enum": texts}, st.lists(st.text(max_size=4), min_size=1, max_size=3)
        ),
    )
    return st.recursive(leaves, _inside, max_leaves=4)


def _inside(inner: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
    names = st.text(st.characters(codec="ascii"), min_size=1, max_size=5)
    return st.one_of(
        st.builds(
            lambda item, n: {"type": "array", "items": item, "maxItems": n},
            inner,
            st.integers(0, 3),
        ),
        st.builds(
            lambda fields: {
                "type": "object",
                "properties": fields,
                "required": list(fields),
                "additionalProperties": False,
            },
            st.dictionaries(names, inner, max_size=3),
        ),
        st.builds(lambda a, b: {"anyOf": [a, b]}, inner, inner),
    )


def fits(value: object, schema: Schema) -> bool:
    """The part of JSON schema that `bounded` speaks."""
    if "anyOf" in schema:
        choices = schema["anyOf"]
        assert isinstance(choices, list)
        return any(fits(value, one) for one in choices)
    if "enum" in schema:
        return value in schema["enum"]
    match schema["type"], value:
        case ("boolean", bool()) | ("null", None):
            return True
        case "integer", int() if not isinstance(value, bool):
            return bool(schema["minimum"] <= value <= schema["maximum"])
        case "string", str():
            return bool(len(value) <= schema["maxLength"])
        case "array", list():
            items = schema["items"]
            return len(value) <= schema["maxItems"] and all(fits(one, items) for one in value)
        case "object", dict():
            fields = schema["properties"]
            assert isinstance(fields, dict)
            return set(value) == set(fields) and all(
                fits(value[name], fields[name]) for name in fields
            )
    return False


@settings(max_examples=60, deadline=None)
@given(schema=bounded(), seed=st.integers(0, 2**32))
def test_random_answers_to_random_schemas_parse_and_hold(schema: Schema, seed: int) -> None:
    request = Request(
        request_id="r",
        prompt_ids=array("i", [1]),
        max_new_tokens=4000,
        grammar=schema_grammar(schema),
    )
    answer = list(obey(seed)(request))
    assert answer.pop() == END_ID
    assert fits(json.loads(bytes(answer)), schema)


def test_an_answer_may_end_only_when_it_is_complete() -> None:
    grammar = Grammar(GrammarKind.REGEX, "ab(cd)?")
    assert allowed_after(grammar, "a") == set(b"b")
    assert allowed_after(grammar, "ab") == {ord("c"), END_ID}
    assert allowed_after(grammar, "abcd") == {END_ID}


def test_any_object_is_an_object() -> None:
    grammar = Grammar(GrammarKind.JSON_OBJECT)
    assert allowed_after(grammar, "") == set(b"{")
    assert END_ID in allowed_after(grammar, '{"a": [1, {"b": null}]}')
    assert END_ID not in allowed_after(grammar, '{"a": [1')


def test_blanks_never_go_on_for_ever() -> None:
    grammar = Grammar(GrammarKind.JSON_OBJECT)
    assert ord(" ") in allowed_after(grammar, "{")
    assert ord(" ") not in allowed_after(grammar, "{" + 16 * " ")


def test_an_answer_that_is_cut_back_goes_on_as_if_it_had_never_been_longer() -> None:
    grammar = schema_grammar({"enum": ["abc", "abd", "x"]})
    follower = GRAMMARS.follower(grammar)
    assert follower.allowed(byte_ids('"abc"')) is not None
    assert follower.allowed(byte_ids('"ab')) == GRAMMARS.follower(grammar).allowed(byte_ids('"ab'))


def test_a_token_that_was_not_allowed_leaves_nothing_to_follow() -> None:
    assert GRAMMARS.follower(Grammar(GrammarKind.REGEX, "ab")).allowed(byte_ids("ax")) is None


def test_logits_may_be_wider_than_the_tokenizer() -> None:
    wide = Grammars(byte_tokenizer(), 1000)
    mask = wide.follower(Grammar(GrammarKind.REGEX, "a")).allowed(())
    assert mask is not None
    assert len(mask) >= 1000 / 8


@pytest.mark.parametrize(
    ("grammar", "why"),
    [
        (schema_grammar({"type": "wat"}), "wat"),
        (schema_grammar({"not": {"type": "string"}}), "not"),
        (schema_grammar({"$ref": "#/nope"}), "nope"),
        (schema_grammar({"$ref": "#"}), "no text"),
        (schema_grammar({"type": "integer", "minimum": 5, "maximum": 3}), "greater than"),
        (Grammar(GrammarKind.JSON_SCHEMA, "[1]"), "no JSON schema"),
        (Grammar(GrammarKind.JSON_SCHEMA, "{"), "no JSON schema"),
        (Grammar(GrammarKind.REGEX, "(a"), "regex"),
        (Grammar(GrammarKind.LARK, "start: nope"), "nope"),
        (Grammar(GrammarKind.REGEX, "(" * 5000 + ")" * 5000), str(MAX_DEPTH)),
        (Grammar(GrammarKind.JSON_SCHEMA, '{"items":' * 500 + "{}" + "}" * 500), str(MAX_DEPTH)),
        (schema_grammar({"description": "x" * 2**18}), str(MAX_SOURCE_BYTES)),
    ],
)
def test_what_cannot_be_compiled_is_refused_with_its_reason(grammar: Grammar, why: str) -> None:
    with pytest.raises(GrammarRefused, match=re.escape(why)):
        GRAMMARS.check(grammar)


def test_the_compiler_is_imported_only_when_a_grammar_comes() -> None:
    code = (
        "import sys, engines.grammar, engines.gang.supervisor; "
        "assert 'llguidance' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
