"""Reads single facts out of a GGUF file's header; no weights, no torch."""

from pathlib import Path

from gguf import GGUFReader


def read_pre_tokenizer_name(path: Path) -> str | None:
    """tokenizer.ggml.pre, None when the file does not say."""
    field = GGUFReader(path).get_field("tokenizer.ggml.pre")
    return None if field is None else str(field.contents())
