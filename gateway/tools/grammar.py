"""What an answer must be, as a grammar for the engine: JSON by its schema, calls by their tools'.

Knows the syntax of calls and llguidance's dialect of Lark; compiles nothing.
"""

import json
from collections.abc import Mapping, Sequence

from engines.api import Grammar, GrammarKind
from gateway.asks import JsonFormat, Tool, ToolMode, Tools
from gateway.tools.syntax import CallFormat, CallSyntax

LAYOUT = {"whitespace_flexible": True, "whitespace_pattern": r"[ \n\t]{0,16}"}
NO_ARGUMENTS: Mapping[str, object] = {
    "type": "object",
    "properties": {},
    "additionalProperties": False,
}


def grammar_of(
    tools: Tools, wanted: JsonFormat | None, syntax: CallSyntax, specials: Mapping[str, int]
) -> Grammar | None:
    """None where the answer is free: no format asked for, and no call that must be or hold."""
    offered = tools.callable
    is_held = tools.mode is ToolMode.REQUIRED or any(tool.strict for tool in offered)
    if not offered or not (is_held or wanted):
        return None if wanted is None else json_grammar(wanted)
    calls = _calls(tools, syntax, specials)
    if tools.mode is ToolMode.REQUIRED:
        return _lark(f"start: {_opened(syntax, specials)} group", *calls)
    if wanted is not None:
        answer = f"answer: %json {_embedded(_schema_of(wanted), strict=_is_strict(wanted))}"
        return _lark(f"start: {_opened(syntax, specials)} group | answer", *calls, answer)
    return _lark(*_amid_text(syntax, specials), *calls)


def json_grammar(wanted: JsonFormat) -> Grammar:
    if wanted.schema is None:
        return Grammar(GrammarKind.JSON_OBJECT)
    schema = _annotated(wanted.schema, strict=_is_strict(wanted))
    return Grammar(GrammarKind.JSON_SCHEMA, json.dumps(schema, ensure_ascii=False))


def _lark(*rules: str) -> Grammar:
    return Grammar(GrammarKind.LARK, "\n".join(rules) + "\n")


def _calls(tools: Tools, syntax: CallSyntax, specials: Mapping[str, int]) -> list[str]:
    """Rules of `group`: what follows the opener."""
    offered = tools.callable
    rules = [f"call: {' | '.join(f'call_{i}' for i in range(len(offered)))}"]
    for i, tool in enumerate(offered):
        head = f'{{"name": {json.dumps(tool.name)}, "{syntax.key}": '
        rules.append(f'call_{i}: {json.dumps(head)} args_{i} "}}"')
        rules.append(f"args_{i}: %json {_embedded(_parameters(tool), strict=tool.strict)}")
    return [_group(tools, syntax, specials), *rules]


def _group(tools: Tools, syntax: CallSyntax, specials: Mapping[str, int]) -> str:
    match syntax.format:
        case CallFormat.LLAMA:
            return "group: call"
        case CallFormat.MISTRAL:
            more = '(", " call)*' if tools.parallel else ""
            return f'group: /[ ]?/ "[" call {more} "]"'
    opener, closer = (_mark(mark, specials) for mark in (syntax.opener, syntax.closer))
    one = f"/[ \\n]{{0,2}}/ call /[ \\n]{{0,2}}/ {closer}"
    more = f"(/[ \\n]{{0,2}}/ {opener} {one})*" if tools.parallel else ""
    return f"group: {one} {more}"


def _opened(syntax: CallSyntax, specials: Mapping[str, int]) -> str:
    return "" if syntax.bare else _mark(syntax.opener, specials)


def _amid_text(syntax: CallSyntax, specials: Mapping[str, int]) -> Sequence[str]:
    """Free text, and calls that hold to their schemas once one begins."""
    if syntax.bare:
        return ("start: group | TEXT", r"TEXT: /([^{\s](.|\n)*)?/")
    text = r"TEXT: /(.|\n)*/"
    if syntax.opener in specials:
        return (f"start: TEXT ({_mark(syntax.opener, specials)} group)?", text)
    lead = f"lead[lazy]: TEXT {_mark(syntax.opener, specials)}"
    return ("start: TEXT | lead group", lead, text)


def _mark(text: str, specials: Mapping[str, int]) -> str:
    """A special token by its id; any other text as text."""
    return f"<[{specials[text]}]>" if text in specials else json.dumps(text)


def _parameters(tool: Tool) -> Mapping[str, object]:
    return tool.parameters or NO_ARGUMENTS


def _schema_of(wanted: JsonFormat) -> Mapping[str, object]:
    return {"type": "object"} if wanted.schema is None else wanted.schema


def _is_strict(wanted: JsonFormat) -> bool:
    described = wanted.spec.get("json_schema")
    return isinstance(described, dict) and described.get("strict") is True


def _embedded(schema: Mapping[str, object], *, strict: bool) -> str:
    options = {**LAYOUT, "lenient": not strict}
    return json.dumps({**schema, "x-guidance": options}, ensure_ascii=False)


def _annotated(schema: Mapping[str, object], *, strict: bool) -> Mapping[str, object]:
    """What a schema that is not strict says beyond the compiler's means is passed over."""
    return {**schema, "x-guidance": {"lenient": not strict}}
