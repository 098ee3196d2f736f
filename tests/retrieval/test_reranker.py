"""A cross-encoder of random weights, built here: the plumbing is tested, not the taste."""

import asyncio
import itertools
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification
from transformers.models.bert import BertTokenizer

from retrieval.api import Chunk, SearchRequest
from retrieval.config import SearchConfig
from retrieval.embedder import FakeEmbedder
from retrieval.fusion import FusedHit, reordered
from retrieval.reranker import CrossEncoderReranker
from retrieval.search import HybridSearcher
from retrieval.stores.memory import MemoryStore
from retrieval.wiring import load_reranker
from tests.retrieval.chunks import DictTexts, chunk, embedded

pytestmark = pytest.mark.timeout(120)
"""The first one imports sentence-transformers."""

WORDS = ["rent", "keys", "bees", "deposit", "clover", "the", "is", "due"]
MAX_TOKENS = 32


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("cross-encoder"), num_labels=1)


def build(folder: Path, *, num_labels: int) -> Path:
    torch.manual_seed(1)
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = folder / "vocab.txt"
    vocabulary.write_text("\n".join([*special, *WORDS]))
    BertTokenizer(str(vocabulary), model_max_length=MAX_TOKENS).save_pretrained(folder)
    config = BertConfig(
        vocab_size=len(special) + len(WORDS),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=MAX_TOKENS,
        initializer_range=1.0,
    )
    config.num_labels = num_labels
    BertForSequenceClassification(config).save_pretrained(folder)
    return folder


async def test_scores_lie_in_the_unit_interval_and_tell_texts_apart(model: Path) -> None:
    reranker = await load_reranker(str(model))
    texts = [" ".join(pair) for pair in itertools.permutations(WORDS[:5], 2)]
    scores = await reranker.scores("rent is due", texts)
    assert scores is not None
    assert len(scores) == len(texts)
    assert all(0 <= score <= 1 for score in scores)
    assert len({round(score, 4) for score in scores}) > 5
    assert await reranker.scores("rent is due", texts[::-1]) == pytest.approx(scores[::-1])


async def test_a_long_text_counts_by_its_best_window(model: Path) -> None:
    reranker = await CrossEncoderReranker.load(model)
    [first] = await reranker.scores("rent", ["keys " * 28]) or []
    [both] = await reranker.scores("rent", ["keys " * 28 + "bees " * 28]) or []
    [second] = await reranker.scores("rent", ["bees " * 28]) or []
    assert both == pytest.approx(max(first, second), abs=0.2)
    assert both >= max(first, second) - 0.2
    assert await reranker.scores("rent", []) == []


async def test_a_query_longer_than_the_model_is_not_cut(model: Path) -> None:
    reranker = await CrossEncoderReranker.load(model)
    assert await reranker.scores("rent " * 40, ["keys"]) is None


async def test_what_is_no_cross_encoder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no folder"):
        await load_reranker(str(tmp_path / "nothing"))
    with pytest.raises(ValueError, match="gives 3 scores"):
        await load_reranker(str(build(tmp_path, num_labels=3)))


def fused(name: str, score: float) -> FusedHit:
    return FusedHit(chunk=chunk(name), score=score, lexical=None, similarity=None)


def test_what_was_not_reranked_stays_behind_in_its_order() -> None:
    hits = [fused("a", 0.9), fused("b", 0.8), fused("c", 0.7), fused("d", 0.6)]
    found = reordered(hits, [0.2, 0.5])
    assert [hit.chunk.text for hit in found] == ["b", "a", "c", "d"]
    scores = [hit.score for hit in found]
    assert scores == sorted(scores, reverse=True)


TEXTS = {name: f"the {name} is due" for name in ("rent", "keys", "deposit")}


class Favouring:
    """A `Reranker` that likes one text; or sleeps for ever."""

    def __init__(self, favourite: str, *, sleeps: bool = False) -> None:
        self._favourite = favourite
        self._sleeps = sleeps

    async def scores(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        if self._sleeps:
            await asyncio.Event().wait()
        return [0.9 if self._favourite in text else 0.1 for text in texts]


async def ask(reranker: Favouring | None) -> list[str]:
    embedder, store = FakeEmbedder(), MemoryStore()
    chunks: list[Chunk] = [chunk(text, document_id=name) for name, text in TEXTS.items()]
    await store.write(await embedded(embedder, *chunks))
    searcher = HybridSearcher(store, embedder, DictTexts(TEXTS), SearchConfig(), reranker=reranker)
    request = SearchRequest(query="is the rent due", document_ids=None, deadline_s=1.5)
    result = await searcher.search(request)
    assert all(0 <= passage.score <= 1 for passage in result.passages)
    return [passage.document_id for passage in result.passages]


async def test_the_rerankers_favourite_comes_first() -> None:
    assert (await ask(None))[0] == "rent"
    assert (await ask(Favouring("keys")))[0] == "keys"


async def test_a_reranker_that_takes_too_long_leaves_the_fused_order() -> None:
    assert await ask(Favouring("keys", sleeps=True)) == await ask(None)
