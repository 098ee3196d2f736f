"""A rendered prompt as the body of OpenAI's chat API, for engines that read chat; sends nothing."""

from collections.abc import Mapping, Sequence

from gateway.asks import Ask, Image, ToolCall
from gateway.prompt.layout import SlottedMessage


def chat_body(messages: Sequence[SlottedMessage], ask: Ask) -> Mapping[str, object]:
    """Messages with the text of their files in place, and what was asked of the answer."""
    body: dict[str, object] = {
        **ask.passed,
        "messages": [_message(message) for message in messages],
    }
    if ask.tools.offered:
        body["tools"] = [tool.spec for tool in ask.tools.offered]
        body["tool_choice"] = ask.tools.mode.value
        if ask.tools.forced is not None:
            body["tool_choice"] = {"type": "function", "function": {"name": ask.tools.forced}}
        if not ask.tools.parallel:
            body["parallel_tool_calls"] = False
    if ask.stop:
        body["stop"] = list(ask.stop)
    if ask.json_format is not None:
        body["response_format"] = ask.json_format.spec
    return body


def _message(message: SlottedMessage) -> Mapping[str, object]:
    content = _parts(message) if message.images else message.text
    sent: dict[str, object] = {"role": message.role, "content": content}
    if message.name is not None:
        sent["name"] = message.name
    if message.tool_call_id is not None:
        sent["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        sent["tool_calls"] = [_call(call) for call in message.tool_calls]
        if not message.text:
            sent["content"] = None
    return sent


def _parts(message: SlottedMessage) -> list[Mapping[str, object]]:
    """The text in pieces, with its images where the caller put them."""
    text = message.text
    parts: list[Mapping[str, object]] = []
    start = 0
    for image in message.images:
        stop = max(start, len(text) - image.tail_chars)
        parts += [*_text_part(text[start:stop]), _image_part(image)]
        start = stop
    return [*parts, *_text_part(text[start:])]


def _text_part(text: str) -> list[Mapping[str, object]]:
    return [{"type": "text", "text": text}] if text else []


def _image_part(image: Image) -> Mapping[str, object]:
    told: dict[str, object] = {"url": image.url}
    if image.detail is not None:
        told["detail"] = image.detail
    return {"type": "image_url", "image_url": told}


def _call(call: ToolCall) -> Mapping[str, object]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}
