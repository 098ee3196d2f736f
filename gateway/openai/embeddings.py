"""The body and the answer of POST /v1/embeddings as OpenAI defines them."""

import base64
from array import array
from collections.abc import Sequence
from typing import Annotated, Literal, TypedDict

from pydantic import Field

from gateway.api import UnsupportedParameter
from gateway.long_json import ObjectReader
from gateway.openai.parse import decode_object, validated
from gateway.openai.wire import Wire
from ingest.embeddings_api import Embedded

MAX_TEXTS = 2048

Text = Annotated[str, Field(min_length=1)]


class EmbeddingsBody(Wire):
    """`encoding_format` is what SDKs choose for speed; the numbers are the same."""

    model: str = Field(min_length=1)
    input: Text | Annotated[list[Text], Field(min_length=1, max_length=MAX_TEXTS)]
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, Field(ge=1)] | None = None
    user: str | None = None

    @property
    def texts(self) -> list[str]:
        return [self.input] if isinstance(self.input, str) else self.input


class EmbeddingObject(TypedDict):
    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class EmbeddingsUsage(TypedDict):
    prompt_tokens: int
    total_tokens: int


class EmbeddingsList(TypedDict):
    object: Literal["list"]
    data: list[EmbeddingObject]
    model: str
    usage: EmbeddingsUsage


def parse_embeddings(raw: bytes | ObjectReader) -> EmbeddingsBody:
    """Raises InvalidRequest, or UnsupportedParameter for token ids: whose they are is unknown."""
    body = decode_object(raw)
    texts = body.get("input")
    if isinstance(texts, list) and texts and isinstance(texts[0], int | list):
        raise UnsupportedParameter("input", detail="as token ids; send text")
    return validated(body, EmbeddingsBody)


def embeddings_list(body: EmbeddingsBody, embedded: Embedded) -> EmbeddingsList:
    num_tokens = sum(embedded.num_tokens)
    is_packed = body.encoding_format == "base64"
    return EmbeddingsList(
        object="list",
        data=[
            EmbeddingObject(
                object="embedding", index=i, embedding=_packed(one) if is_packed else list(one)
            )
            for i, one in enumerate(embedded.vectors)
        ],
        model=body.model,
        usage=EmbeddingsUsage(prompt_tokens=num_tokens, total_tokens=num_tokens),
    )


def _packed(vector: Sequence[float]) -> str:
    """Little-endian float32, as OpenAI packs them."""
    return base64.b64encode(array("f", vector).tobytes()).decode()
