"""Chunks whose size their owner set in tokens."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from ingest.chunking import ChunkSource
from ingest.stores_api import Chunking
from ingest.token_chunking import WindowConfig, chunk_by_tokens
from retrieval.api import Chunk
from tests.ingest.house import word_spans

SMALL = WindowConfig(max_tokens=20)


def chunks_of(text: str, chunking: Chunking, windows: WindowConfig = SMALL) -> list[Chunk]:
    source = ChunkSource(
        document_id="d",
        generation="g",
        text=text,
        collection="vs_1",
        attributes={"year": 1911.0},
    )
    return chunk_by_tokens(source, chunking, word_spans, windows)


def parents_of(chunks: list[Chunk]) -> list[tuple[int, int]]:
    return sorted({(one.parent_start, one.parent_stop) for one in chunks})


words = st.lists(st.sampled_from(["a", "bc.", "def\n\n", "ghij,", "x\n"]), max_size=700)
sizes = st.builds(
    lambda size, share: Chunking(max_tokens=size, overlap_tokens=int(size * share)),
    st.integers(100, 300),
    st.floats(0, 0.5),
)


@given(words, sizes, st.integers(4, 60))
def test_chunks_cover_the_text_once_inside_parents_of_the_size_asked_for(
    parts: list[str], chunking: Chunking, window: int
) -> None:
    text = " ".join(parts)
    chunks = chunks_of(text, chunking, WindowConfig(max_tokens=window))
    if not text.split():
        assert chunks == []
        return
    assert "".join(one.text for one in chunks) == text
    for one in chunks:
        assert one.text == text[one.start : one.stop]
        assert one.parent_start <= one.start < one.stop <= one.parent_stop
        assert len(word_spans(one.text)) <= window
    for start, stop in parents_of(chunks):
        assert len(word_spans(text[start:stop])) <= chunking.max_tokens
    assert len({one.id for one in chunks}) == len(chunks)
    assert chunks == chunks_of(text, chunking, WindowConfig(max_tokens=window))


def test_parents_overlap_by_exactly_what_was_asked_for() -> None:
    text = " ".join(f"w{n}" for n in range(1000))
    parents = parents_of(chunks_of(text, Chunking(max_tokens=200, overlap_tokens=50)))
    assert len(parents) > 4
    for (_, stop), (start, _) in pairwise(parents):
        assert len(word_spans(text[start:stop])) == 50


def test_a_parent_ends_at_the_best_boundary_of_its_last_fifth() -> None:
    words = [f"w{n}" for n in range(300)]
    text = " ".join(words[:180]) + "\n\n" + " ".join(words[180:])
    start, stop = parents_of(chunks_of(text, Chunking(max_tokens=200, overlap_tokens=0)))[0]
    assert text[start:stop].split() == words[:180]


def test_a_chunk_is_read_in_the_parent_that_has_it_nearest_its_middle() -> None:
    text = " ".join(f"w{n}" for n in range(600))
    chunks = chunks_of(text, Chunking(max_tokens=200, overlap_tokens=100))
    for one in chunks:
        middle = one.start + one.stop
        distance = abs(one.parent_start + one.parent_stop - middle)
        for start, stop in parents_of(chunks):
            if start <= one.start and one.stop <= stop:
                assert distance <= abs(start + stop - middle)


def test_chunks_carry_their_collection_and_attributes() -> None:
    [one] = chunks_of("The lease ends in May.", Chunking())
    assert (one.collection, one.attributes) == ("vs_1", {"year": 1911.0})
