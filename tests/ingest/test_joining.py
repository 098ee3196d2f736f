import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.joining import JoiningEmbedder
from retrieval.api import SearchUnavailable
from retrieval.embedder import FakeEmbedder


class GatedEmbedder(FakeEmbedder):
    """Notes its calls and answers when the gate is open; a text "bad" fails its call."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[list[str]] = []
        self.gate = asyncio.Event()

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        self.calls.append(list(texts))
        await self.gate.wait()
        if "bad" in texts:
            raise SearchUnavailable("it does not answer")
        return await super().embed(texts)


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@given(st.lists(st.lists(st.text(max_size=8), max_size=6), max_size=8), st.integers(1, 7))
async def test_everybody_gets_the_vectors_of_their_own_texts(
    files: list[list[str]], max_texts: int
) -> None:
    embedder = GatedEmbedder()
    joining = JoiningEmbedder(embedder, calls=1, max_texts=max_texts)
    waiting = [asyncio.create_task(joining.embed(texts)) for texts in files]
    await settle()
    embedder.gate.set()
    for texts, task in zip(files, waiting, strict=True):
        assert list(await task) == list(await embedder.embed(texts))


async def test_what_comes_while_calls_run_goes_together() -> None:
    embedder = GatedEmbedder()
    joining = JoiningEmbedder(embedder, calls=2, max_texts=4)
    waiting = [asyncio.create_task(joining.embed([f"a{n}", f"b{n}"])) for n in range(5)]
    await settle()
    assert embedder.calls == [["a0", "b0"], ["a1", "b1"]]
    embedder.gate.set()
    await asyncio.gather(*waiting)
    assert embedder.calls[2:] == [["a2", "b2", "a3", "b3"], ["a4", "b4"]]


async def test_an_error_reaches_all_in_its_call_and_no_later_one() -> None:
    embedder = GatedEmbedder()
    joining = JoiningEmbedder(embedder, calls=1)
    first = asyncio.create_task(joining.embed(["first"]))
    await settle()
    joined = [asyncio.create_task(joining.embed([text])) for text in ("good", "bad")]
    await settle()
    embedder.gate.set()
    assert len(await first) == 1
    for task in joined:
        with pytest.raises(SearchUnavailable):
            await task
    assert len(await joining.embed(["later"])) == 1


async def test_a_caller_that_leaves_takes_its_texts_along_and_nothing_else() -> None:
    embedder = GatedEmbedder()
    joining = JoiningEmbedder(embedder, calls=1)
    first, gone, stays = (asyncio.create_task(joining.embed([text])) for text in "abc")
    await settle()
    gone.cancel()
    await settle()
    embedder.gate.set()
    assert len(await first) == len(await stays) == 1
    assert embedder.calls == [["a"], ["c"]]
