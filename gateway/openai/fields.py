"""Which of OpenAI's chat fields exist and are refused by name; knows no values of accepted ones."""

from collections.abc import Mapping, Sequence

from gateway.api import UnsupportedParameter

REFUSED = frozenset(
    {
        "audio",
        "function_call",
        "functions",
        "moderation",
        "parallel_tool_calls",
        "prediction",
        "prompt_cache_options",
        "prompt_cache_retention",
        "reasoning_effort",
        "tools",
        "verbosity",
        "web_search_options",
    }
)
"""Known to OpenAI, not served here: any value but null is refused."""

ONLY_VALUE: Mapping[str, Sequence[object]] = {
    "n": [1],
    "store": [False],
    "modalities": [["text"]],
    "response_format": [{"type": "text"}],
    "tool_choice": ["none"],
}
"""Fields whose neutral value is accepted, and nothing else."""

MESSAGE_REFUSED = ("audio", "function_call", "tool_calls", "tool_call_id")
ROLES_REFUSED = ("tool", "function")
PARTS_REFUSED = ("image_url", "input_audio", "refusal", "video_url")
FILE_REFUSED = ("file_data", "filename")


def refuse_unsupported(body: Mapping[str, object]) -> None:
    """Raise UnsupportedParameter for the first thing that Ringway knows and does not serve."""
    for name, value in body.items():
        if name in REFUSED and value is not None:
            raise UnsupportedParameter(name)
        if name in ONLY_VALUE and value is not None and _differs(value, ONLY_VALUE[name]):
            raise UnsupportedParameter(name, detail=f"only {ONLY_VALUE[name][0]!r} is")
    messages = body.get("messages")
    if isinstance(messages, list):
        for i, message in enumerate(messages):
            if isinstance(message, dict):
                _refuse_in_message(message, f"messages[{i}]")


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
    file = part.get("file")
    if isinstance(file, dict):
        for name in FILE_REFUSED:
            if file.get(name) is not None:
                raise UnsupportedParameter(f"{where}.file.{name}", detail="upload to /v1/files")
