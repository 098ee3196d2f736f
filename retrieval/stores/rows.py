"""How a chunk lies in an index, the same in every store; knows no index library."""

from collections.abc import Mapping
from dataclasses import fields

from retrieval.analyzer import analyze_joined
from retrieval.api import Chunk

CHUNK_FIELDS = tuple(field.name for field in fields(Chunk))


def search_text(chunk: Chunk) -> str:
    """What is analysed and embedded for a chunk: its heading path, then its text."""
    return f"{chunk.heading}\n{chunk.text}" if chunk.heading else chunk.text


def chunk_row(chunk: Chunk) -> dict[str, str | int]:
    """The chunk's own fields and `terms`, the analysed text that full-text search reads."""
    row: dict[str, str | int] = {name: getattr(chunk, name) for name in CHUNK_FIELDS}
    row["terms"] = analyze_joined(search_text(chunk))
    return row


def row_chunk(row: Mapping[str, object]) -> Chunk:
    """The chunk of a row that any store gave back."""
    return Chunk(**{name: row[name] for name in CHUNK_FIELDS})  # type: ignore[arg-type]
