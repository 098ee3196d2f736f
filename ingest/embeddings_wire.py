"""Embeddings as they go between worker and gateway: texts as JSON, vectors as packed floats."""

from array import array
from collections.abc import Sequence

import msgspec

from ingest.embeddings_api import Embedded


class WireTexts(msgspec.Struct, frozen=True):
    texts: list[str]


class WireVectors(msgspec.Struct, frozen=True, kw_only=True):
    """`packed` is one float32 vector after the other, little-endian."""

    num_tokens: list[int]
    packed: bytes


class WireTooLong(msgspec.Struct, frozen=True, kw_only=True):
    """A fault of the face with the numbers of TextTooLong beside it."""

    message: str
    index: int
    num_tokens: int
    limit: int
    code: str = "text_too_long"


_texts = msgspec.json.Decoder(WireTexts)
_vectors = msgspec.msgpack.Decoder(WireVectors)


def encode_texts(texts: Sequence[str]) -> bytes:
    return msgspec.json.encode(WireTexts(list(texts)))


def decode_texts(body: bytes) -> list[str]:
    """Raises msgspec.DecodeError."""
    return _texts.decode(body).texts


def encode_vectors(embedded: Embedded) -> bytes:
    packed = b"".join(array("f", vector).tobytes() for vector in embedded.vectors)
    return msgspec.msgpack.encode(WireVectors(num_tokens=list(embedded.num_tokens), packed=packed))


def decode_vectors(body: bytes) -> Embedded:
    """Raises msgspec.DecodeError, also when the vectors are not equally long."""
    found = _vectors.decode(body)
    num_texts = len(found.num_tokens)
    if num_texts == 0:
        return Embedded(vectors=[], num_tokens=[])
    size, rest = divmod(len(found.packed), num_texts)
    if rest or size % 4:
        raise msgspec.DecodeError("the vectors are not equally long")
    pieces = (found.packed[first : first + size] for first in range(0, len(found.packed), size))
    return Embedded(vectors=[array("f", piece) for piece in pieces], num_tokens=found.num_tokens)
