"""Kept chat completions as OpenAI lists, shows and changes them."""

from collections.abc import Mapping, Sequence
from typing import Literal, NotRequired, TypedDict

import msgspec

from gateway.api import InvalidRequest
from gateway.openai.chat import ChatBody
from gateway.openai.messages import Message
from gateway.openai.objects import ChatCompletion, ToolCallObject
from gateway.openai.wire import Metadata, Wire
from gateway.stored.api import KeptChat
from ingest.stores_api import Page


class UpdateChat(Wire):
    """Null takes all metadata away."""

    metadata: Metadata | None


class StoredChat(ChatCompletion):
    metadata: dict[str, str]


class StoredMessage(TypedDict):
    """`content_parts` are the parts where content came in parts; `content` is then their text."""

    id: str
    role: str
    content: str | None
    name: str | None
    content_parts: list[dict[str, object]] | None
    tool_calls: NotRequired[list[ToolCallObject]]
    tool_call_id: NotRequired[str]


class ChatList(TypedDict):
    object: Literal["list"]
    data: list[StoredChat]
    first_id: str | None
    last_id: str | None
    has_more: bool


class MessageList(TypedDict):
    object: Literal["list"]
    data: list[StoredMessage]
    first_id: str | None
    last_id: str | None
    has_more: bool


class ChatDeleted(TypedDict):
    object: Literal["chat.completion.deleted"]
    id: str
    deleted: bool


def stored_chat(kept: KeptChat) -> StoredChat:
    body = msgspec.json.decode(kept.body, type=dict[str, object])
    return msgspec.convert({**body, "metadata": dict(kept.metadata)}, StoredChat)


def chat_list(page: Page[KeptChat]) -> ChatList:
    ids = [one.id for one in page.items]
    return ChatList(
        object="list",
        data=[stored_chat(one) for one in page.items],
        first_id=ids[0] if ids else None,
        last_id=ids[-1] if ids else None,
        has_more=page.has_more,
    )


def kept_messages(body: ChatBody, completion_id: str) -> list[StoredMessage]:
    return [_stored(one, f"{completion_id}-{i}") for i, one in enumerate(body.messages)]


def message_list(kept: KeptChat, *, after: str | None, limit: int, ascending: bool) -> MessageList:
    """Raises InvalidRequest when `after` is none of the messages."""
    messages = msgspec.json.decode(kept.messages, type=list[StoredMessage])
    ordered: Sequence[StoredMessage] = messages if ascending else messages[::-1]
    ids = [one["id"] for one in ordered]
    if after is not None and after not in ids:
        raise InvalidRequest(
            f"Invalid value for 'after': no message '{after}'.", param="after", code="invalid_value"
        )
    first = 0 if after is None else ids.index(after) + 1
    data = list(ordered[first : first + limit])
    return MessageList(
        object="list",
        data=data,
        first_id=data[0]["id"] if data else None,
        last_id=data[-1]["id"] if data else None,
        has_more=len(ordered) > first + limit,
    )


def metadata_wanted(query: Mapping[str, str]) -> dict[str, str]:
    """The pairs of a query's `metadata[name]=value`. Raises InvalidRequest for another form."""
    wanted = {}
    for key, value in query.items():
        if key.startswith("metadata"):
            name = key.removeprefix("metadata[").removesuffix("]")
            if key != f"metadata[{name}]" or not name:
                raise InvalidRequest(
                    f"Invalid query parameter '{key}': write metadata[name]=value.",
                    param="metadata",
                    code="invalid_value",
                )
            wanted[name] = value
    return wanted


def _stored(message: Message, message_id: str) -> StoredMessage:
    content, parts = message.content, None
    if content is not None and not isinstance(content, str):
        parts = [part.model_dump(exclude_none=True) for part in content]
        content = message.text
    stored = StoredMessage(
        id=message_id,
        role=message.role,
        content=content,
        name=message.name,
        content_parts=parts,
    )
    if message.tool_calls:
        calls = [call.model_dump() for call in message.tool_calls]
        stored["tool_calls"] = msgspec.convert(calls, list[ToolCallObject])
    if message.tool_call_id is not None:
        stored["tool_call_id"] = message.tool_call_id
    return stored
