"""Which of OpenAI's chat fields exist and are refused by name; knows no values of accepted ones."""

from collections.abc import Mapping, Sequence

from gateway.api import UnsupportedParameter

REFUSED = frozenset(
    {
        "audio",
        "function_call",
        "functions",
        "moderation",
        "prediction",
        "web_search_options",
    }
)
"""Known to OpenAI, not served here: any value but null is refused."""

ONLY_VALUE: Mapping[str, Sequence[object]] = {
    "modalities": [["text"]],
}
"""Fields whose neutral value is accepted, and nothing else."""

MESSAGE_REFUSED = ("audio", "function_call")
ROLES_REFUSED = ("function",)
TOOLS_REFUSED = ("custom", "web_search", "file_search", "code_interpreter", "mcp")
CHOICES_REFUSED = ("allowed_tools", "custom")
PARTS_REFUSED = ("input_audio", "refusal", "video_url")
PART_FIELDS_REFUSED = ("prompt_cache_breakpoint",)
FILE_REFUSED = ("file_data", "filename")


def refuse_unsupported(body: Mapping[str, object]) -> None:
    """Raise UnsupportedParameter for the first thing that Ringway knows and does not serve."""
    for name, value in body.items():
        if name in REFUSED and value is not None:
            raise UnsupportedParameter(name)
        if name in ONLY_VALUE and value is not None and _differs(value, ONLY_VALUE[name]):
            raise UnsupportedParameter(name, detail=f"only {ONLY_VALUE[name][0]!r} is")
    _refuse_tools(body)
    messages = body.get("messages")
    if isinstance(messages, list):
        for i, message in enumerate(messages):
            if isinstance(message, dict):
                _refuse_in_message(message, f"messages[{i}]")


def _refuse_tools(body: Mapping[str, object]) -> None:
    tools, choice = body.get("tools"), body.get("tool_choice")
    for i, tool in enumerate(tools if isinstance(tools, list) else ()):
        if isinstance(tool, dict) and tool.get("type") in TOOLS_REFUSED:
            raise UnsupportedParameter(
                f"tools[{i}].type", detail=f"a tool of type '{tool['type']}'"
            )
    if isinstance(choice, dict) and choice.get("type") in CHOICES_REFUSED:
        raise UnsupportedParameter("tool_choice.type", detail=f"type '{choice['type']}'")


def _differs(value: object, allowed: Sequence[object]) -> bool:
    """`True == 1` in Python; JSON keeps them apart, and leaves a wrong type to validation."""
    return not any(value == one and type(value) is type(one) for one in allowed)


def _refuse_in_message(message: Mapping[str, object], where: str) -> None:
    for name in MESSAGE_REFUSED:
        if message.get(name):
            raise UnsupportedParameter(f"{where}.{name}")
    if message.get("role") in ROLES_REFUSED:
        raise UnsupportedParameter(f"{where}.role", detail=f"role '{message['role']}'")
    content = message.get("content")
    if isinstance(content, list):
        for i, part in enumerate(content):
            if isinstance(part, dict):
                _refuse_in_part(part, f"{where}.content[{i}]")


def _refuse_in_part(part: Mapping[str, object], where: str) -> None:
    if part.get("type") in PARTS_REFUSED:
        raise UnsupportedParameter(f"{where}.type", detail=f"a part of type '{part['type']}'")
    for name in PART_FIELDS_REFUSED:
        if part.get(name) is not None:
            raise UnsupportedParameter(f"{where}.{name}")
    file = part.get("file")
    if isinstance(file, dict):
        for name in FILE_REFUSED:
            if file.get(name) is not None:
                raise UnsupportedParameter(f"{where}.file.{name}", detail="upload to /v1/files")
