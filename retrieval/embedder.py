"""Text to unit vectors with a local sentence-transformers model; knows nothing of indexes.

A text longer than the model reads is embedded in windows of the model's length and the windows'
vectors are averaged by their token counts, so no text is cut in silence.
"""

import asyncio
import hashlib
import logging
import os
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from retrieval.analyzer import analyze
from retrieval.config import EmbedderConfig
from retrieval.embedding.lanes import Lanes
from retrieval.embedding.weights import DEFAULT_MODEL_PACKAGE, identify

if TYPE_CHECKING:
    from retrieval.embedding.model import EmbeddingModel

__all__ = ["DEFAULT_MODEL_PACKAGE", "FakeEmbedder", "LocalEmbedder"]

logger = logging.getLogger(__name__)


class LocalEmbedder:
    """An `Embedder` in this process. Every lane is one thread on one core: two of them do more
    than one batch on two cores, and batches of concurrent calls take turns (see `Lanes`)."""

    def __init__(
        self, model: "EmbeddingModel", lanes: Lanes, *, identity: str, batch_tokens: int
    ) -> None:
        self._model = model
        self._lanes = lanes
        self._batch_tokens = batch_tokens
        self._identity = identity

    @classmethod
    async def load(cls, config: EmbedderConfig | None = None) -> "LocalEmbedder":
        """Find, verify and load the model. Raises ValueError when it cannot be used."""
        return await asyncio.to_thread(cls._load, config or EmbedderConfig())

    @classmethod
    def _load(cls, config: EmbedderConfig) -> "LocalEmbedder":
        folder, identity = identify(config.model)
        import torch

        from retrieval.embedding.model import EmbeddingModel

        model = EmbeddingModel(folder, config)
        lanes = Lanes(config.lanes or len(os.sched_getaffinity(0)), prepare=_use_one_thread)
        num_threads = torch.get_num_threads()
        lanes.start()
        # What a lane sets for itself is also what threads begun later start with.
        torch.set_num_threads(num_threads)
        logger.info("embedder loaded", extra={"model": identity, "precision": model.precision})
        return cls(model, lanes, identity=identity, batch_tokens=config.batch_tokens)

    @property
    def identity(self) -> str:
        return self._identity

    @property
    def dimension(self) -> int:
        return self._model.dimension

    @property
    def window_tokens(self) -> int:
        return self._model.window_tokens

    @property
    def precision(self) -> str:
        """What the products are of: int8, bfloat16 or float32. Vectors of one model differ too
        little between them to part indexes by it (see `EmbedderDtype`)."""
        return self._model.precision

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Unit-length vectors as float arrays, in order."""
        if not texts:
            return []
        from retrieval.embedding.model import unit

        [cut] = await self._lanes.run([partial(self._cut, texts)])
        found = cut.vectors or await self._lanes.run(
            [
                partial(self._model.forward, [cut.windows[index] for index in run])
                for run in cut.runs
            ]
        )
        sums = np.zeros((len(texts), self.dimension), dtype=np.float32)
        for run, vectors in zip(cut.runs, found, strict=True):
            weights = np.array([len(cut.windows[index]) for index in run], dtype=np.float32)
            np.add.at(sums, [cut.owners[index] for index in run], unit(vectors) * weights[:, None])
        return [array("f", row.tobytes()) for row in unit(sums)]

    def _cut(self, texts: Sequence[str]) -> "_Cut":
        """A query is read at once, as waking another lane would take as long as a layer."""
        from retrieval.embedding.model import batches

        windows, owners = self._model.windows(texts)
        runs = list(batches(windows, self._batch_tokens))
        vectors = []
        if len(runs) == 1:
            vectors.append(self._model.forward([windows[index] for index in runs[0]]))
        return _Cut(windows, owners, runs, vectors)


@dataclass(frozen=True, slots=True)
class _Cut:
    """Texts as windows: whose each is, which are read together, and the vectors of a single run."""

    windows: Sequence[Sequence[int]]
    owners: Sequence[int]
    runs: Sequence[Sequence[int]]
    vectors: Sequence[NDArray[np.float32]]


def _use_one_thread() -> None:
    """Of torch, for the calling thread. A thread's first parallel operation, or first question for
    the number of its threads, takes the process's number; so it is asked before it is set."""
    import torch

    torch.get_num_threads()
    torch.set_num_threads(1)


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

    @property
    def window_tokens(self) -> int:
        return 256

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
