"""Bytes to a ChatBody, and everything that can be wrong with them in OpenAI's words."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from gateway.api import InvalidRequest
from gateway.long_json import ObjectReader, decode
from gateway.openai.chat import ChatBody
from gateway.openai.fields import REFUSED, refuse_unsupported
from gateway.openai.wire import Wire

Body = TypeVar("Body", bound=Wire)

CODES = {
    "missing": "missing_required_parameter",
    "extra_forbidden": "unknown_parameter",
    "too_short": "array_below_min_length",
    "too_long": "array_above_max_length",
    "string_too_short": "empty_string",
    "literal_error": "invalid_value",
    "union_tag_invalid": "invalid_value",
    "string_pattern_mismatch": "invalid_value",
    "invalid_encrypted_content": "invalid_encrypted_content",
}
"""pydantic's error type to OpenAI's code; `*_type` is invalid_type, limits are spelled below."""

LIMITS = {
    "greater_than_equal": "below_min_value",
    "greater_than": "below_min_value",
    "less_than_equal": "above_max_value",
    "less_than": "above_max_value",
}


def parse_chat(raw: bytes | ObjectReader) -> ChatBody:
    """Raises InvalidRequest or UnsupportedParameter, naming the first thing that is wrong."""
    return validated_chat(decode_object(raw))


def validated_chat(body: Mapping[str, object]) -> ChatBody:
    """Raises what `parse_chat` does."""
    refuse_unsupported(body)
    known = {name: value for name, value in body.items() if name not in REFUSED}
    return validated(known, ChatBody)


def validated(body: Mapping[str, object], kind: type[Body]) -> Body:
    """Raises InvalidRequest, naming the first thing that is wrong."""
    try:
        return kind.model_validate(body)
    except ValidationError as error:
        raise invalid(error, body) from None
    except RecursionError:
        raise InvalidRequest(
            "The JSON body of your request is nested too deeply.", param=None, code="invalid_json"
        ) from None


def decode_object(raw: bytes | ObjectReader) -> dict[str, object]:
    if isinstance(raw, ObjectReader):
        return raw.finish()
    body = decode(raw)
    if not isinstance(body, dict):
        raise InvalidRequest(
            "The JSON body of your request must be an object.", param=None, code="invalid_json"
        )
    return body


def invalid(error: ValidationError, body: object) -> InvalidRequest:
    """The error that lies deepest in the body: of a union's complaints, the one that applies."""
    located = [
        (_real_path(one["loc"], body), one)
        for one in error.errors(include_url=False, include_input=False)
    ]
    # Of two complaints about one value, "wrong type" is about the branch it was not meant for.
    path, detail = max(
        located, key=lambda pair: (len(pair[0]), not pair[1]["type"].endswith("_type"))
    )
    if detail["type"] == "value_error" and not path:
        said = detail["msg"].removeprefix("Value error, ").split("|")
        param, message, code = (*said, "invalid_value")[:3]
        return InvalidRequest(f"Invalid request: '{param}' {message}.", param=param, code=code)
    param = _spell(path)
    return InvalidRequest(_message(detail, param), param=param, code=_code(detail))


def _real_path(loc: Sequence[str | int], body: object) -> tuple[str | int, ...]:
    """`loc` without the names of union branches, which are no part of the body."""
    path: list[str | int] = []
    here = body
    for i, step in enumerate(loc):
        found, inside = _enter(here, step)
        if found:
            here = inside
        elif not isinstance(here, dict) or i < len(loc) - 1 or step == "[key]":
            continue
        path.append(step)
    return tuple(path)


def _enter(here: object, step: str | int) -> tuple[bool, object]:
    if isinstance(here, list) and isinstance(step, int) and step < len(here):
        return True, here[step]
    if isinstance(here, dict) and step in here:
        return True, here[step]
    return False, None


def _spell(path: Sequence[str | int]) -> str:
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def _code(detail: ErrorDetails) -> str:
    kind = detail["type"]
    if kind in LIMITS:
        return f"{'decimal' if _is_decimal(detail) else 'integer'}_{LIMITS[kind]}"
    if kind.endswith(("_type", "_parsing", "none_required")):
        return "invalid_type"
    return CODES.get(kind, "invalid_value")


def _is_decimal(detail: ErrorDetails) -> bool:
    return any(isinstance(bound, float) for bound in detail.get("ctx", {}).values())


def _message(detail: ErrorDetails, param: str) -> str:
    match detail["type"]:
        case "missing":
            return f"Missing required parameter: '{param}'."
        case "extra_forbidden":
            return f"Unknown parameter: '{param}'."
    said = detail["msg"]
    return f"Invalid value for '{param}': {said[:1].lower()}{said[1:]}."
