"""A loaded sentence-transformers model: text to windows of token ids, windows to vectors.

The only owner of torch objects besides the byte encoder; synchronous and safe for concurrent use.
"""

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import sentence_transformers
import torch
import transformers
from numpy.typing import NDArray

from retrieval.config import EmbedderConfig
from retrieval.embedding.precision import byte_encoder, float_type

Window = Sequence[int]
"""Token ids that the model reads at once, special tokens included."""


class EmbeddingModel:
    def __init__(self, folder: Path, config: EmbedderConfig) -> None:
        transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
        transformers.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        model = sentence_transformers.SentenceTransformer(str(folder), device="cpu")
        dimension = model.get_embedding_dimension()
        model_tokens = model.max_seq_length
        if dimension is None or model_tokens is None:
            raise ValueError(f"{folder} does not say its dimension and its longest text")
        self.dimension = dimension
        self.window_tokens = min(config.window_tokens or model_tokens, model_tokens)
        self._tokenizer = model.tokenizer
        self._tokenizing = threading.Lock()
        self._bytes = byte_encoder(model, config.dtype)
        self._model = model if self._bytes is None else None
        if self._bytes is not None:
            self.precision = "int8"
        else:
            dtype = float_type(config.dtype)
            model.to(dtype)
            self.precision = str(dtype).removeprefix("torch.")

    def windows(self, texts: Sequence[str]) -> tuple[list[Window], list[int]]:
        """Every window, and the index of the text that each belongs to."""
        with self._tokenizing:
            encoding = self._tokenizer(
                list(texts),
                truncation=True,
                max_length=self.window_tokens,
                return_overflowing_tokens=True,
                return_attention_mask=False,
                return_token_type_ids=False,
            )
        return list(encoding["input_ids"]), list(encoding["overflow_to_sample_mapping"])

    def forward(self, windows: Sequence[Window]) -> NDArray[np.float32]:
        """One vector for each window, in order; quickest when neighbours are about as long."""
        if self._bytes is not None:
            return self._bytes.mean_vectors(windows)
        assert self._model is not None
        with torch.inference_mode():
            with self._tokenizing:
                padded = self._tokenizer.pad({"input_ids": list(windows)}, return_tensors="pt")
            features: dict[str, torch.Tensor] = dict(padded)
            vectors: NDArray[np.float32] = (
                self._model(features)["sentence_embedding"].float().numpy()
            )
        return vectors


def batches(windows: Sequence[Window], batch_tokens: int) -> Iterator[list[int]]:
    """Indices of windows, longest first, in runs whose padded size is within `batch_tokens`."""
    order = sorted(range(len(windows)), key=lambda index: -len(windows[index]))
    start = 0
    while start < len(order):
        longest = max(1, len(windows[order[start]]))
        stop = start + max(1, batch_tokens // longest)
        yield order[start:stop]
        start = stop


def unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    scaled: NDArray[np.float32] = (vectors / np.maximum(lengths, 1e-12)).astype(np.float32)
    return scaled
