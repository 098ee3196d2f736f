"""Chunks and tiny documents for retrieval's tests."""

from collections.abc import Mapping

from retrieval.api import LIBRARY, Attribute, Chunk, EmbeddedChunk, Embedder
from retrieval.stores.rows import search_text


def chunk(  # noqa: PLR0913
    text: str,
    *,
    document_id: str = "doc",
    generation: str = "g1",
    start: int = 0,
    parent: tuple[int, int] | None = None,
    heading: str = "",
    collection: str = LIBRARY,
    attributes: Mapping[str, Attribute] | None = None,
) -> Chunk:
    stop = start + len(text)
    parent_start, parent_stop = parent or (start, stop)
    return Chunk(
        id=f"{collection}/{document_id}/{generation}/{start}-{stop}",
        document_id=document_id,
        generation=generation,
        start=start,
        stop=stop,
        parent_start=parent_start,
        parent_stop=parent_stop,
        text=text,
        heading=heading,
        collection=collection,
        attributes=attributes or {},
    )


async def embedded(embedder: Embedder, *chunks: Chunk) -> list[EmbeddedChunk]:
    vectors = await embedder.embed([search_text(one) for one in chunks])
    return [EmbeddedChunk(one, vector) for one, vector in zip(chunks, vectors, strict=True)]


class DictTexts:
    """A `TextSource` over a mapping; remembers what was read."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = texts
        self.read: list[str] = []

    async def text(self, document_id: str) -> str | None:
        self.read.append(document_id)
        return self._texts.get(document_id)
