"""What an Ask's tools and format mean for one model: how calls are heard, and which grammar holds.

Knows the model's template and special tokens; no engine.
"""

from collections.abc import Mapping

from engines.api import Grammar, GrammarRefused
from gateway.api import InvalidRequest
from gateway.asks import Ask, ToolMode, Tools
from gateway.prompt.model_text import ModelText
from gateway.stream import Hearing
from gateway.tools.grammar import grammar_of
from gateway.tools.syntax import syntax_of


def hearing_of(ask: Ask, model: ModelText) -> Hearing | None:
    """None when no tool may be called."""
    offered = ask.tools.callable
    if not offered:
        return None
    return Hearing(
        syntax=syntax_of(model.template.source),
        names=frozenset(tool.name for tool in offered),
        live=ask.tools.mode is ToolMode.REQUIRED or any(tool.strict for tool in offered),
        parallel=ask.tools.parallel,
    )


def answer_grammar(ask: Ask, model: ModelText) -> Grammar | None:
    syntax = syntax_of(model.template.source)
    return grammar_of(ask.tools, ask.json_format, syntax, model.encoder.specials)


def refused_grammar(ask: Ask, error: GrammarRefused) -> InvalidRequest:
    """The engine's refusal under the name of the field whose schema it is about."""
    if ask.json_format is None and ask.tools.callable:
        return InvalidRequest(
            f"Invalid schema in 'tools': {error}.",
            param="tools",
            code="invalid_function_parameters",
        )
    return InvalidRequest(
        f"Invalid schema in 'response_format': {error}.",
        param="response_format",
        code="invalid_json_schema",
    )


def told_tools(tools: Tools) -> tuple[Mapping[str, object], ...]:
    """What the template is given: nothing when no tool may be called."""
    return () if tools.mode is ToolMode.NONE else tuple(tool.spec for tool in tools.offered)
