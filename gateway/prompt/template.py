"""The model's chat template, rendered as transformers renders it; knows no tokens."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from gateway.api import TemplateRefused


class GenerationTag(Extension):
    """`{% generation %}…{% endgeneration %}` marks training targets; here its body is all."""

    tags = {"generation"}  # noqa: RUF012 - jinja reads a class attribute

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


@dataclass(frozen=True, slots=True)
class ChatTemplate:
    source: str
    compiled: jinja2.Template
    special_tokens: Mapping[str, str]

    @classmethod
    def build(
        cls,
        source: str,
        special_tokens: Mapping[str, str],
        *,
        now: Callable[[], datetime] = datetime.now,
    ) -> "ChatTemplate":
        """The template is code from the model's folder: it runs in jinja's immutable sandbox."""

        def strftime_now(pattern: str) -> str:
            return now().strftime(pattern)

        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[GenerationTag, "jinja2.ext.loopcontrols"],
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = strftime_now
        return cls(source, environment.from_string(source), dict(special_tokens))

    def render(
        self,
        messages: Sequence[Mapping[str, object]],
        tools: Sequence[Mapping[str, object]] = (),
        *,
        opens_answer: bool = True,
    ) -> str:
        """Raises TemplateRefused with the template's own words."""
        spoken = [dict(message) for message in messages]
        if "developer" not in self.source:
            for message in spoken:
                if message["role"] == "developer":
                    message["role"] = "system"
        try:
            return self.compiled.render(
                messages=spoken,
                tools=list(tools) or None,
                documents=None,
                add_generation_prompt=opens_answer,
                **self.special_tokens,
            )
        except (jinja2.TemplateError, TypeError) as error:
            raise TemplateRefused(f"The model's chat template refuses: {error}") from error


def _raise_exception(message: str) -> str:
    raise jinja2.TemplateError(message)


def _to_json(value: object, ensure_ascii: bool = False, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)
