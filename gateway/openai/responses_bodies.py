"""The body of POST /v1/responses as OpenAI defines it, with Ringway's own fields.

Knows types and ranges, and what of OpenAI's is refused by name.
"""

from collections.abc import Mapping
from typing import Annotated, Final, Literal

from pydantic import Field, model_validator

from gateway.api import UnsupportedParameter
from gateway.long_json import ObjectReader
from gateway.openai.chat import (
    MAX_VECTOR_STORES,
    CacheOptions,
    Document,
    Effort,
    FidelityName,
    Tier,
    Verbosity,
)
from gateway.openai.parse import decode_object, validated
from gateway.openai.responses_items import InputItem, MessageItem
from gateway.openai.vector_stores_bodies import RankingOptions
from gateway.openai.vector_stores_filters import FilterBody
from gateway.openai.wire import Metadata, Wire
from ingest.stores_api import MAX_RESULTS

RESULTS: Final = "file_search_call.results"
LOGPROBS: Final = "message.output_text.logprobs"
ENCRYPTED: Final = "reasoning.encrypted_content"
Include = Literal[
    "file_search_call.results", "message.output_text.logprobs", "reasoning.encrypted_content"
]
"""There are no reasoning items here, so their content is included as it is: not."""

REFUSED = (
    "access_programs",
    "background",
    "background_options",
    "context_management",
    "conversation",
    "image",
    "max_tool_calls",
    "moderation",
    "prompt",
)
"""Known to OpenAI, not served here: any value but null and false is refused."""

ITEMS_SERVED = (
    "message",
    "function_call",
    "function_call_output",
    "file_search_call",
    "compaction",
)
PARTS_SERVED = ("input_text", "output_text", "input_file", "input_image")
OUTPUTS_SERVED = ("input_text",)
TOOLS_SERVED = ("function", "file_search")

FunctionName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
StoreIds = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=64)]],
    Field(min_length=1, max_length=MAX_VECTOR_STORES),
]


class FunctionTool(Wire):
    type: Literal["function"]
    name: FunctionName
    description: str | None = None
    parameters: dict[str, object] | None = None
    strict: bool | None = None


class FileSearchTool(Wire):
    type: Literal["file_search"]
    vector_store_ids: StoreIds
    max_num_results: Annotated[int, Field(ge=1, le=MAX_RESULTS)] | None = None
    ranking_options: RankingOptions | None = None
    filters: FilterBody | None = None


Tool = Annotated[FunctionTool | FileSearchTool, Field(discriminator="type")]


class NamedFunction(Wire):
    type: Literal["function"]
    name: FunctionName


class NamedFileSearch(Wire):
    type: Literal["file_search"]


NamedTool = Annotated[NamedFunction | NamedFileSearch, Field(discriminator="type")]


class PlainText(Wire):
    type: Literal["text"]


class JsonObject(Wire):
    type: Literal["json_object"]


class JsonSchema(Wire):
    type: Literal["json_schema"]
    name: FunctionName
    schema_: dict[str, object] = Field(alias="schema")
    description: str | None = None
    strict: bool | None = None


class TextBody(Wire):
    format: Annotated[PlainText | JsonObject | JsonSchema, Field(discriminator="type")] | None = (
        None
    )
    verbosity: Verbosity | None = None


class Reasoning(Wire):
    effort: Effort | None = None
    summary: None = None
    generate_summary: None = None


class ResponseStreamOptions(Wire):
    include_obfuscation: Literal[False] | None = None


class ResponseBody(Wire):
    """Null means "not given" everywhere, as in OpenAI's API."""

    model: str = Field(min_length=1)
    input: Annotated[str, Field(min_length=1)] | Annotated[list[InputItem], Field(min_length=1)]
    instructions: str | None = None
    previous_response_id: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    store: bool | None = None
    stream: bool | None = None
    stream_options: ResponseStreamOptions | None = None
    include: list[Include] | None = None
    metadata: Metadata | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    max_output_tokens: Annotated[int, Field(ge=1)] | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    text: TextBody | None = None
    tools: list[Tool] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    parallel_tool_calls: bool | None = None
    reasoning: Reasoning | None = None
    truncation: Literal["disabled"] | None = None
    background: Literal[False] | None = None
    service_tier: Tier | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: Literal["in_memory", "24h"] | None = None
    prompt_cache_options: CacheOptions | None = None
    user: str | None = None
    safety_identifier: str | None = None
    fidelity: FidelityName | None = None
    allow_fallback: bool | None = None
    documents: list[Document] | None = None

    @model_validator(mode="after")
    def _fields_agree(self) -> "ResponseBody":
        if sum(isinstance(tool, FileSearchTool) for tool in self.tools or ()) > 1:
            raise ValueError("tools|has more than one 'file_search'; name all stores in one")
        if self.stream_options is not None and not self.stream:
            raise ValueError("stream_options|is only allowed when 'stream' is true")
        if isinstance(self.tool_choice, NamedFileSearch) and self.file_search is None:
            raise ValueError("tool_choice|names 'file_search', which is not among 'tools'")
        return self

    @property
    def items(self) -> list[InputItem]:
        if isinstance(self.input, str):
            return [MessageItem(role="user", content=self.input)]
        return self.input

    @property
    def functions(self) -> list[FunctionTool]:
        return [tool for tool in self.tools or () if isinstance(tool, FunctionTool)]

    @property
    def file_search(self) -> FileSearchTool | None:
        """The search on offer; one that may not be used is none."""
        if self.tool_choice == "none":
            return None
        return next((one for one in self.tools or () if isinstance(one, FileSearchTool)), None)


def parse_response(raw: bytes | ObjectReader) -> ResponseBody:
    """Raises InvalidRequest or UnsupportedParameter, naming the first thing that is wrong."""
    body = decode_object(raw)
    refuse_unsupported(body)
    known = {name: value for name, value in body.items() if name not in REFUSED}
    return validated(known, ResponseBody)


def refuse_unsupported(body: Mapping[str, object]) -> None:
    """Raise UnsupportedParameter for the first thing that Ringway knows and does not serve."""
    for name in REFUSED:
        if body.get(name) not in (None, False):
            raise UnsupportedParameter(name)
    if body.get("truncation") == "auto":
        raise UnsupportedParameter("truncation", detail="nothing is cut; only 'disabled' is")
    _refuse_includes(body.get("include"))
    _refuse_reasoning(body.get("reasoning"))
    _refuse_kinds(body.get("tools"), "tools", TOOLS_SERVED)
    _refuse_kinds(body.get("input"), "input", ITEMS_SERVED)
    items = body.get("input")
    for i, item in enumerate(items if isinstance(items, list) else ()):
        if isinstance(item, dict):
            _refuse_kinds(item.get("content"), f"input[{i}].content", PARTS_SERVED)
            _refuse_kinds(item.get("output"), f"input[{i}].output", OUTPUTS_SERVED)
            _refuse_in_parts(item.get("content"), f"input[{i}].content")
    choice = body.get("tool_choice")
    if isinstance(choice, dict) and isinstance(choice.get("type"), str):
        _refuse_kinds([choice], "tool_choice", TOOLS_SERVED)


def _refuse_reasoning(reasoning: object) -> None:
    if isinstance(reasoning, dict):
        for name, value in reasoning.items():
            if value is not None and name != "effort":
                raise UnsupportedParameter(f"reasoning.{name}")


def _refuse_kinds(items: object, where: str, served: tuple[str, ...]) -> None:
    if not isinstance(items, list):
        return
    for i, item in enumerate(items):
        kind = item.get("type") if isinstance(item, dict) else None
        if isinstance(kind, str) and kind not in served:
            raise UnsupportedParameter(f"{where}[{i}].type", detail=f"'{kind}'")


WAYS_OUT: Mapping[str, Mapping[str, str]] = {
    "input_file": {"file_data": "upload to /v1/files", "file_url": "upload to /v1/files"},
    "input_image": {"file_id": "send 'image_url', which may hold the bytes"},
}
"""By kind of part what of it is not served, and what to do instead."""


def _refuse_in_parts(parts: object, where: str) -> None:
    for i, part in enumerate(parts if isinstance(parts, list) else ()):
        if isinstance(part, dict):
            for name, way_out in WAYS_OUT.get(str(part.get("type")), {}).items():
                if part.get(name) is not None:
                    raise UnsupportedParameter(f"{where}[{i}].{name}", detail=way_out)


def _refuse_includes(include: object) -> None:
    for i, name in enumerate(include if isinstance(include, list) else ()):
        if isinstance(name, str) and name not in (RESULTS, LOGPROBS, ENCRYPTED):
            raise UnsupportedParameter(f"include[{i}]", detail=f"'{name}'")
