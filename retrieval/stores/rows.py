"""How a chunk lies in an index, the same in every store; knows no index library."""

import json
import math
from collections.abc import Mapping
from dataclasses import fields

from retrieval.analyzer import analyze_joined
from retrieval.api import Attribute, Chunk, EmbeddedChunk, WriteRejected
from retrieval.filters import is_text, kind_of

LAYOUT = "2"
"""Changes whenever a store keeps chunks in another way (1: no collections, no attributes)."""

CHUNK_FIELDS = tuple(field.name for field in fields(Chunk))
_KINDS: Mapping[type, str] = {str: "s", float: "n", bool: "b"}


def search_text(chunk: Chunk) -> str:
    """What is analysed and embedded for a chunk: its heading path, then its text."""
    return f"{chunk.heading}\n{chunk.text}" if chunk.heading else chunk.text


def chunk_row(chunk: Chunk) -> dict[str, str | int]:
    """The chunk's own fields and `terms`, the analysed text that full-text search reads."""
    row: dict[str, str | int] = {name: getattr(chunk, name) for name in CHUNK_FIELDS}
    row["attributes"] = _attributes_json(chunk.attributes)
    row["terms"] = analyze_joined(search_text(chunk))
    return row


def row_chunk(row: Mapping[str, object]) -> Chunk:
    """The chunk of a row that any store gave back."""
    values = {name: row[name] for name in CHUNK_FIELDS}
    values["attributes"] = _json_attributes(str(row["attributes"]))
    return Chunk(**values)  # type: ignore[arg-type]


def json_key(key: str, value: Attribute) -> str:
    """Names the value's kind, so that one key never holds two kinds; hex, because stores give
    dots, quotes and brackets in a key a meaning of their own."""
    return _KINDS[kind_of(value)] + key.encode().hex()


def check_embedded(embedded: EmbeddedChunk) -> None:
    """Raises WriteRejected for attributes that no filter could compare, and for a vector without
    a direction, which would be found by nothing or by everything."""
    chunk, length = embedded.chunk, math.hypot(*embedded.vector)
    if not 0 < length < math.inf:
        raise WriteRejected(chunk_id=chunk.id, reason=f"its vector's length is {length}")
    for key, value in chunk.attributes.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise WriteRejected(chunk_id=chunk.id, reason=f"attribute {key!r} is {value}")
        if not all(is_text(each) for each in (key, value) if isinstance(each, str)):
            raise WriteRejected(
                chunk_id=chunk.id, reason=f"attribute {key!r} holds half a character"
            )


def _attributes_json(attributes: Mapping[str, Attribute]) -> str:
    return json.dumps({json_key(key, value): plain(value) for key, value in attributes.items()})


def plain(value: Attribute) -> Attribute:
    """A whole number as the float that it stands for."""
    return value if isinstance(value, str | bool) else float(value)


def _json_attributes(text: str) -> dict[str, Attribute]:
    if text == "{}":
        return {}
    found: dict[str, str | float | bool] = json.loads(text)
    return {bytes.fromhex(key[1:]).decode(): _typed(key, value) for key, value in found.items()}


def _typed(key: str, value: Attribute) -> Attribute:
    """A whole number may come back from a store without its decimal point."""
    return float(value) if key.startswith(_KINDS[float]) else value
