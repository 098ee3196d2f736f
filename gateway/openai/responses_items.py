"""The input items of POST /v1/responses as OpenAI defines them, and how they are kept."""

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag, TypeAdapter

from gateway.openai.compaction import CompactionItem
from gateway.openai.messages import Detail, ImageUrl
from gateway.openai.wire import Wire

ItemStatus = Literal["in_progress", "completed", "incomplete"]
Id = Annotated[str, Field(min_length=1, max_length=128)]


class InputText(Wire):
    type: Literal["input_text"]
    text: str


class OutputText(Wire):
    """What an answer said; annotations and logprobs come back with it and are no prompt."""

    type: Literal["output_text"]
    text: str
    annotations: list[object] | None = None
    logprobs: list[object] | None = None


class InputFile(Wire):
    type: Literal["input_file"]
    file_id: str = Field(min_length=1)
    filename: None = None
    file_data: None = None
    file_url: None = None


class InputImage(Wire):
    type: Literal["input_image"]
    image_url: ImageUrl
    detail: Detail | None = None
    file_id: None = None


ContentPart = Annotated[
    InputText | OutputText | InputFile | InputImage, Field(discriminator="type")
]


class MessageItem(Wire):
    """`phase` labels an assistant's message; chat templates have no place for it."""

    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: str | Annotated[list[ContentPart], Field(min_length=1)]
    id: Id | None = None
    status: ItemStatus | None = None
    phase: Literal["commentary", "final_answer"] | None = None


class FunctionCallItem(Wire):
    type: Literal["function_call"]
    call_id: Id
    name: str = Field(min_length=1, max_length=128)
    arguments: str
    id: Id | None = None
    status: ItemStatus | None = None


class FunctionOutputItem(Wire):
    type: Literal["function_call_output"]
    call_id: Id
    output: str | Annotated[list[InputText], Field(min_length=1)]
    id: Id | None = None
    status: ItemStatus | None = None


class FileSearchItem(Wire):
    """A search that an earlier answer was read from; its passages are searched for anew."""

    type: Literal["file_search_call"]
    id: Id
    queries: list[str]
    status: Literal["in_progress", "searching", "completed", "incomplete", "failed"]
    results: list[dict[str, object]] | None = None


def _kind_of(item: object) -> str:
    """A message may leave its type out."""
    kind = item.get("type", "message") if isinstance(item, dict) else getattr(item, "type", "")
    return kind if isinstance(kind, str) else ""


InputItem = Annotated[
    Annotated[MessageItem, Tag("message")]
    | Annotated[FunctionCallItem, Tag("function_call")]
    | Annotated[FunctionOutputItem, Tag("function_call_output")]
    | Annotated[FileSearchItem, Tag("file_search_call")]
    | Annotated[CompactionItem, Tag("compaction")],
    Discriminator(_kind_of),
]

KEPT_ITEMS: TypeAdapter[list[InputItem]] = TypeAdapter(list[InputItem])

ID_PREFIXES = {
    "message": "msg",
    "function_call": "fc",
    "function_call_output": "fco",
    "file_search_call": "fs",
    "compaction": "cmp",
}


def listed(items: Sequence[InputItem], suffix: str) -> list[dict[str, object]]:
    """The items as they are listed and kept: each has an id, and text is always in parts."""
    return [_listed(item, f"{suffix}_{i}") for i, item in enumerate(items)]


def _listed(item: InputItem, suffix: str) -> dict[str, object]:
    body: dict[str, object] = item.model_dump(exclude_none=True)
    body["id"] = item.id or f"{ID_PREFIXES[item.type]}_{suffix}"
    if not isinstance(item, CompactionItem):
        body.setdefault("status", "completed")
    if isinstance(item, MessageItem) and isinstance(item.content, str):
        body["content"] = [_text_part(item.role, item.content)]
    return body


def _text_part(role: str, text: str) -> dict[str, object]:
    if role == "assistant":
        return {"type": "output_text", "text": text, "annotations": []}
    return {"type": "input_text", "text": text}
