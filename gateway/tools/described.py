"""Tools for a template that knows none: told in the system message, Hermes' way.

Calls and results of earlier turns become text too: a call in `<tool_call>`, a result as a user's
message in `<tool_response>`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from gateway.asks import ToolCall
from gateway.prompt.layout import SlottedMessage

PREAMBLE = """# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{tools}
</tools>

For each function call, return a json object with function name and arguments within \
<tool_call></tool_call> XML tags:
<tool_call>
{{"name": <function-name>, "arguments": <args-json-object>}}
</tool_call>"""


def described(
    messages: Sequence[SlottedMessage], tools: Sequence[Mapping[str, object]]
) -> list[SlottedMessage]:
    """The messages without any tools, calls and tool messages."""
    spoken = [_as_text(message) for message in messages]
    if not tools:
        return spoken
    told = PREAMBLE.format(tools="\n".join(json.dumps(one, ensure_ascii=False) for one in tools))
    if spoken and spoken[0].role in ("system", "developer"):
        first = replace(spoken[0], content=(*spoken[0].content, "\n\n", told))
        return [first, *spoken[1:]]
    return [SlottedMessage(role="system", content=(told,)), *spoken]


def _as_text(message: SlottedMessage) -> SlottedMessage:
    if message.role == "tool":
        content = ("<tool_response>\n", *message.content, "\n</tool_response>")
        return SlottedMessage(role="user", content=content)
    if not message.tool_calls:
        return message
    calls = "\n".join(_call(call) for call in message.tool_calls)
    gap = "\n" if any(message.content) else ""
    return SlottedMessage(
        role=message.role, name=message.name, content=(*message.content, gap, calls)
    )


def _call(call: ToolCall) -> str:
    body = f'{{"name": {json.dumps(call.name)}, "arguments": {call.arguments}}}'
    return f"<tool_call>\n{body}\n</tool_call>"
