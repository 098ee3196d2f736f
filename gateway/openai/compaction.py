"""Conversations made short, as one item of a later conversation.

What a model noted of a conversation travels in `encrypted_content`, which clients send back as it
is. It is packed, not secret: who holds it held the conversation, and it says no more than any
message of theirs could.
"""

import base64
import binascii
import zlib
from typing import Annotated, Literal, TypedDict

import msgspec
from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from gateway.api import GatewayError
from gateway.openai.wire import Wire

MARK = "rwc1."
MAX_PACKED_CHARS = 2**20
MAX_SUMMARY_BYTES = 2**20


class CompactionCut(GatewayError):
    """The model did not come to an end with its summary, or wrote none."""

    def __init__(self, num_tokens: int) -> None:
        super().__init__(
            f"The conversation was not compacted: the summary was not complete after {num_tokens} "
            "tokens. Nothing is kept of it; send the conversation again or in two parts."
        )


class Packed(msgspec.Struct, frozen=True):
    summary: str


def pack(summary: str) -> str:
    raw = zlib.compress(msgspec.json.encode(Packed(summary)))
    return MARK + base64.urlsafe_b64encode(raw).decode()


def unpack(content: str) -> str:
    """The summary. Raises ValueError for what was not packed here or is no longer whole."""
    if not content.startswith(MARK):
        raise ValueError("it was not made by this gateway")
    try:
        raw = base64.b64decode(content.removeprefix(MARK), altchars=b"-_", validate=True)
        unzip = zlib.decompressobj()
        body = unzip.decompress(raw, MAX_SUMMARY_BYTES)
        if not unzip.eof:
            raise ValueError("it is not whole")
        return msgspec.json.decode(body, type=Packed).summary
    except (binascii.Error, zlib.error, msgspec.MsgspecError) as error:
        raise ValueError("it is not whole") from error


def _unpackable(content: str) -> str:
    try:
        unpack(content)
    except ValueError as error:
        raise PydanticCustomError(
            "invalid_encrypted_content", "{why}", {"why": str(error)}
        ) from None
    return content


class CompactionItem(Wire):
    type: Literal["compaction"]
    encrypted_content: Annotated[
        str, Field(max_length=MAX_PACKED_CHARS), AfterValidator(_unpackable)
    ]
    id: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    created_by: str | None = None

    @property
    def summary(self) -> str:
        return unpack(self.encrypted_content)


class CompactionObject(TypedDict):
    type: Literal["compaction"]
    id: str
    encrypted_content: str
