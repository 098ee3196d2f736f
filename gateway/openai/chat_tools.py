"""Tools, calls and answer formats in a chat body, and what they mean; knows no other field."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field, model_validator

from gateway.asks import JsonFormat, Tool, ToolCall, ToolMode, Tools
from gateway.openai.wire import Wire

MAX_TOOLS = 128
Name = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]


class FunctionBody(Wire):
    name: Name
    description: str | None = None
    parameters: dict[str, object] | None = None
    strict: bool | None = None


class ToolBody(Wire):
    type: Literal["function"]
    function: FunctionBody


class NamedFunction(Wire):
    name: Name


class NamedTool(Wire):
    type: Literal["function"]
    function: NamedFunction


ToolList = Annotated[list[ToolBody], Field(max_length=MAX_TOOLS)]
ToolChoice = Literal["none", "auto", "required"] | NamedTool


class CalledFunction(Wire):
    name: str = Field(min_length=1)
    arguments: str


class CallBody(Wire):
    id: str = Field(min_length=1)
    type: Literal["function"] = "function"
    function: CalledFunction


class TextFormat(Wire):
    type: Literal["text"]


class ObjectFormat(Wire):
    type: Literal["json_object"]


class DescribedSchema(Wire):
    name: Name
    description: str | None = None
    json_schema: dict[str, object] | None = Field(default=None, alias="schema")
    strict: bool | None = None


class SchemaFormat(Wire):
    type: Literal["json_schema"]
    json_schema: DescribedSchema


Format = Annotated[TextFormat | ObjectFormat | SchemaFormat, Field(discriminator="type")]


class ToolFields(Wire):
    """The fields of a chat body that are about tools. Null means "not given"."""

    tools: ToolList | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None

    @model_validator(mode="after")
    def _choice_is_on_offer(self) -> "ToolFields":
        names = [tool.function.name for tool in self.tools or ()]
        if len(set(names)) != len(names):
            raise ValueError("tools|has two functions with one name")
        choice = self.tool_choice
        if isinstance(choice, NamedTool) and choice.function.name not in names:
            raise ValueError(f"tool_choice|names '{choice.function.name}', which 'tools' has not")
        if choice == "required" and not names:
            raise ValueError("tool_choice|is only allowed when 'tools' are given")
        if self.parallel_tool_calls is not None and not names:
            raise ValueError("parallel_tool_calls|is only allowed when 'tools' are given")
        return self


def tools_of(body: ToolFields) -> Tools:
    choice = body.tool_choice or "auto"
    forced = choice.function.name if isinstance(choice, NamedTool) else None
    return Tools(
        offered=tuple(_tool(tool) for tool in body.tools or ()),
        mode=ToolMode.REQUIRED if isinstance(choice, NamedTool) else ToolMode(choice),
        forced=forced,
        parallel=body.parallel_tool_calls is not False and forced is None,
    )


def _tool(body: ToolBody) -> Tool:
    function = body.function
    return Tool(
        name=function.name,
        parameters=function.parameters or {},
        spec=body.model_dump(exclude_none=True),
        strict=bool(function.strict),
    )


def calls_of(calls: Sequence[CallBody] | None) -> tuple[ToolCall, ...]:
    return tuple(
        ToolCall(id=call.id, name=call.function.name, arguments=call.function.arguments)
        for call in calls or ()
    )


def format_of(body: TextFormat | ObjectFormat | SchemaFormat | None) -> JsonFormat | None:
    match body:
        case ObjectFormat():
            return JsonFormat(spec={"type": "json_object"})
        case SchemaFormat(json_schema=described):
            spec: Mapping[str, object] = body.model_dump(by_alias=True, exclude_none=True)
            return JsonFormat(spec=spec, schema=described.json_schema)
    return None
