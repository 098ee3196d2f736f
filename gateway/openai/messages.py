"""The messages of a chat body as OpenAI defines them, and the Turns that they mean."""

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from gateway.asks import Image, Turn
from gateway.openai.chat_tools import CallBody, calls_of
from gateway.openai.wire import Wire

ImageUrl = Annotated[str, Field(pattern=r"^(https?://|data:image/[a-z0-9.+-]+;base64,)")]
Detail = Literal["auto", "low", "high", "original"]


class TextPart(Wire):
    type: Literal["text"]
    text: str


class FileRef(Wire):
    file_id: str = Field(min_length=1)
    file_data: None = None
    filename: None = None


class FilePart(Wire):
    type: Literal["file"]
    file: FileRef


class ImageRef(Wire):
    url: ImageUrl
    detail: Detail | None = None


class ImagePart(Wire):
    type: Literal["image_url"]
    image_url: ImageRef


Part = Annotated[TextPart | FilePart | ImagePart, Field(discriminator="type")]


class Message(Wire):
    """The null fields, and `annotations`, are those that SDKs send back when a message is echoed;
    annotations are no part of a prompt. An assistant that calls may have no content."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | Annotated[list[Part], Field(min_length=1)] | None = None
    name: str | None = None
    refusal: str | None = None
    annotations: list[object] | None = None
    audio: None = None
    function_call: None = None
    tool_calls: list[CallBody] | None = None
    tool_call_id: Annotated[str, Field(min_length=1)] | None = None

    @property
    def text(self) -> str:
        """Its text parts, joined by newlines."""
        return self.content if isinstance(self.content, str) else _text(self.parts)

    @property
    def parts(self) -> Sequence[TextPart | FilePart | ImagePart]:
        """None when the content is one text."""
        return self.content if isinstance(self.content, list) else ()


def amiss(message: Message) -> str | None:
    """What is wrong with a message whose fields are well-typed: where, how, and the code of it."""
    if message.role == "tool" and message.tool_call_id is None:
        return "tool_call_id|is required in a message with role 'tool'"
    if message.role != "tool" and message.tool_call_id is not None:
        return "tool_call_id|is only allowed in a message with role 'tool'"
    if message.role != "assistant" and message.tool_calls:
        return "tool_calls|is only allowed in a message with role 'assistant'"
    if message.content is None and not (message.role == "assistant" and message.tool_calls):
        missing = "content" not in message.model_fields_set
        return "content|is required|" + (
            "missing_required_parameter" if missing else "invalid_type"
        )
    for i, part in enumerate(message.parts):
        if isinstance(part, ImagePart) and message.role != "user":
            return f"content[{i}]|is an image, only allowed in a message with role 'user'"
    return None


def turn_of(message: Message, index: int) -> Turn:
    """`index` is the message's place in the body."""
    parts = message.parts
    file_ids = [part.file.file_id for part in parts if isinstance(part, FilePart)]
    return Turn(
        role=message.role,
        text=message.text,
        file_ids=tuple(dict.fromkeys(file_ids)),
        images=tuple(
            Image(
                url=part.image_url.url,
                detail=part.image_url.detail,
                where=f"messages[{index}].content[{i}]",
                tail_chars=len(_text(parts[i:])),
            )
            for i, part in enumerate(parts)
            if isinstance(part, ImagePart)
        ),
        name=message.name,
        tool_calls=calls_of(message.tool_calls),
        tool_call_id=message.tool_call_id,
    )


def _text(parts: Sequence[TextPart | FilePart | ImagePart]) -> str:
    return "\n".join(part.text for part in parts if isinstance(part, TextPart))
