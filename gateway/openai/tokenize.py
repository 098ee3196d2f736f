"""Bodies and answers of /v1/tokenize and /v1/detokenize, in vLLM's shape; knows no tokenizer."""

from array import array
from typing import Annotated, TypedDict

from pydantic import Field

from gateway.api import InvalidRequest, UnsupportedParameter
from gateway.asks import Ask, RawPrompt
from gateway.long_json import ObjectReader
from gateway.openai.chat import to_ask
from gateway.openai.parse import decode_object, validated, validated_chat
from gateway.openai.wire import Wire

OF_CHAT = ("model", "messages", "tools", "documents")
MAX_TOKEN_ID = 2**31


class TokenizeOptions(Wire):
    """What of a body is not a chat's: a prompt as it stands instead of messages, and wishes."""

    prompt: str | None = None
    add_generation_prompt: bool = True
    add_special_tokens: bool | None = None
    return_token_strs: bool | None = None


class PromptOptions(TokenizeOptions):
    model: str = Field(min_length=1)


class DetokenizeBody(Wire):
    model: str = Field(min_length=1)
    tokens: list[Annotated[int, Field(ge=0, lt=MAX_TOKEN_ID)]]


class TokenizeAnswer(TypedDict):
    """`count_kind` is exact or estimated; an estimate has no tokens to show."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None
    count_kind: str


class DetokenizeAnswer(TypedDict):
    prompt: str


def parse_tokenize(raw: bytes | ObjectReader) -> tuple[Ask, TokenizeOptions]:
    """What would be sent for the same prompt or messages. Raises InvalidRequest or
    UnsupportedParameter."""
    body = decode_object(raw)
    if (body.get("prompt") is None) == (body.get("messages") is None):
        raise InvalidRequest(
            "Send either 'prompt' or 'messages'.",
            param="prompt",
            code="missing_required_parameter",
        )
    if body.get("prompt") is not None:
        given = validated(body, PromptOptions)
        _refuse_other(given, "add_special_tokens", False)
        return Ask(model=given.model, turns=(), raw=RawPrompt(given.prompt or "")), given
    options = validated({k: v for k, v in body.items() if k not in OF_CHAT}, TokenizeOptions)
    _refuse_other(options, "add_special_tokens", True)
    chat = validated_chat({name: body[name] for name in OF_CHAT if name in body})
    return to_ask(chat, seed=0), options


def parse_detokenize(raw: bytes | ObjectReader) -> tuple[str, "array[int]"]:
    """Model and ids. Raises InvalidRequest."""
    body = validated(decode_object(raw), DetokenizeBody)
    return body.model, array("i", body.tokens)


def _refuse_other(options: TokenizeOptions, name: str, value: bool) -> None:
    """Opening tokens belong to a prompt as it stands and not to a chat, whose template has them."""
    if options.add_special_tokens is value:
        raise UnsupportedParameter(name, detail=f"only {not value} is, with this prompt")
