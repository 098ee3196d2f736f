"""A local cross-encoder that reads query and text together; knows nothing of searches.

A text longer than the model reads is scored in windows, and its best window counts.
"""

import asyncio
import logging
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

logger = logging.getLogger(__name__)

_BATCH = 8
"""Windows in one forward pass: how long a cancelled rerank still keeps the thread."""


class CrossEncoderReranker:
    """A `Reranker` in this process, in one thread of its own."""

    def __init__(self, model: "_Model") -> None:
        self._model = model
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="reranker")

    @classmethod
    async def load(cls, folder: Path) -> "CrossEncoderReranker":
        """Raises ValueError when the folder holds no cross-encoder of one score."""
        return cls(await asyncio.to_thread(_Model, folder))

    async def scores(self, query: str, texts: Sequence[str]) -> Sequence[float] | None:
        if not texts:
            return []
        run = partial(asyncio.get_running_loop().run_in_executor, self._thread)
        windows, owners = await run(self._model.windows, query, texts)
        if windows is None:
            return None
        best = [0.0] * len(texts)
        order = sorted(range(len(windows)), key=lambda place: len(windows[place]))
        for first in range(0, len(order), _BATCH):
            places = order[first : first + _BATCH]
            logits = await run(self._model.logits, [windows[place] for place in places])
            for place, logit in zip(places, logits, strict=True):
                best[owners[place]] = max(best[owners[place]], _probability(logit))
        return best


Window = tuple[list[int], list[int]]
"""Token ids, and which of the two texts each belongs to."""


class _Model:
    """The only owner of torch objects; synchronous."""

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise ValueError(f"no reranking model: {folder} is no folder")
        import sentence_transformers

        try:
            encoder = sentence_transformers.CrossEncoder(
                str(folder), device="cpu", local_files_only=True
            )
        except (OSError, ValueError, KeyError) as error:
            raise ValueError(f"{folder} holds no cross-encoder: {error}") from error
        self._tokenizer = encoder.tokenizer
        self._model = encoder.model.eval()
        if self._model.config.num_labels != 1:
            raise ValueError(
                f"{folder} gives {self._model.config.num_labels} scores; a reranker gives one"
            )
        self._max_tokens = int(encoder.max_seq_length or self._model.config.max_position_embeddings)
        logger.info("reranker loaded", extra={"model": folder.name, "tokens": self._max_tokens})

    def windows(self, query: str, texts: Sequence[str]) -> tuple[list[Window] | None, list[int]]:
        """None when the query leaves no room for a text."""
        num_query_tokens = len(self._tokenizer(query)["input_ids"])
        if num_query_tokens > self._max_tokens // 2:
            logger.info("query too long to rerank", extra={"tokens": num_query_tokens})
            return None, []
        encoding = self._tokenizer(
            [query] * len(texts),
            list(texts),
            truncation="only_second",
            max_length=self._max_tokens,
            return_overflowing_tokens=True,
            return_token_type_ids=True,
            return_attention_mask=False,
        )
        pairs = zip(encoding["input_ids"], encoding["token_type_ids"], strict=True)
        return list(pairs), list(encoding["overflow_to_sample_mapping"])

    def logits(self, windows: Sequence[Window]) -> list[float]:
        import torch

        features = self._tokenizer.pad(
            {
                "input_ids": [ids for ids, _ in windows],
                "token_type_ids": [types for _, types in windows],
            },
            return_tensors="pt",
        )
        wanted = {name: features[name] for name in features if self._takes(name)}
        with torch.inference_mode():
            found: list[float] = self._model(**wanted).logits.float().flatten().tolist()
        return found

    def _takes(self, name: str) -> bool:
        return name != "token_type_ids" or bool(getattr(self._model.config, "type_vocab_size", 0))


def _probability(logit: float) -> float:
    """The logistic function, without overflow."""
    return 0.5 * (1.0 + math.tanh(0.5 * logit))
