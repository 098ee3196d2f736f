"""Chunks tile the text exactly, within bounds, at places where people would cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.chunking import ChunkConfig, ChunkSource, chunk
from ingest.parsing.outline import markdown_outline
from ingest.parsing.parsed import Heading

TEXTS = st.lists(
    st.one_of(
        st.text(max_size=60),
        st.sampled_from(["\n\n", "\r\n\r\n", "\n", ". ", "word " * 9, "x" * 70, "。", "\n# H\n"]),
    ),
    max_size=60,
).map("".join)
CONFIGS = st.tuples(st.integers(4, 60), st.integers(0, 120)).map(
    lambda sizes: ChunkConfig(chunk_chars=sizes[0], parent_chars=sizes[0] + sizes[1])
)


def source(text: str, outline: list[Heading] | None = None, title: str = "") -> ChunkSource:
    return ChunkSource(
        document_id="file-1", generation="g", text=text, title=title, outline=outline or []
    )


@given(text=TEXTS, config=CONFIGS)
def test_chunks_cover_the_text_in_order_without_gaps(text: str, config: ChunkConfig) -> None:
    chunks = chunk(source(text, markdown_outline(text)), config)
    position = 0
    for each in chunks:
        assert each.start == position < each.stop
        assert each.text == text[each.start : each.stop]
        position = each.stop
    assert position == len(text)


@given(text=TEXTS, config=CONFIGS)
def test_sizes_are_bounded_above_and_below(text: str, config: ChunkConfig) -> None:
    for each in chunk(source(text, markdown_outline(text)), config):
        parent_chars = each.parent_stop - each.parent_start
        assert each.parent_start <= each.start < each.stop <= each.parent_stop
        assert parent_chars <= config.parent_chars
        assert len(each.text) <= config.chunk_chars
        assert len(each.text) >= min(parent_chars, int(config.chunk_chars * config.min_share))


@given(text=TEXTS, config=CONFIGS)
def test_parents_tile_the_text_too(text: str, config: ChunkConfig) -> None:
    parents = dict.fromkeys(
        (each.parent_start, each.parent_stop) for each in chunk(source(text), config)
    )
    stops = [0, *(stop for _, stop in parents)]
    assert [start for start, _ in parents] == stops[:-1]


@given(text=TEXTS, config=CONFIGS)
def test_the_same_source_gives_the_same_ids_and_no_two_are_equal(
    text: str, config: ChunkConfig
) -> None:
    first = [each.id for each in chunk(source(text), config)]
    assert first == [each.id for each in chunk(source(text), config)]
    assert len(set(first)) == len(first)


def test_the_id_depends_on_document_and_generation() -> None:
    config = ChunkConfig()
    ids = {
        chunk(ChunkSource(document_id=d, generation=g, text="text"), config)[0].id
        for d in ("a", "b")
        for g in ("1", "2")
    }
    assert len(ids) == 4
    assert all(len(each) == 32 for each in ids)


def test_a_paragraph_break_is_preferred_to_a_sentence_and_a_sentence_to_a_word() -> None:
    config = ChunkConfig(chunk_chars=40, parent_chars=400)
    text = "One two three four. Five six.\n\nSeven eight nine ten. Eleven twelve thirteen fourteen"
    assert [each.text for each in chunk(source(text), config)] == [
        "One two three four. Five six.\n\n",
        "Seven eight nine ten. ",
        "Eleven twelve thirteen fourteen",
    ]


def test_a_heading_opens_a_chunk_and_its_path_is_remembered() -> None:
    text = (
        "# Lease\n\nThe tenant pays monthly rent.\n\n## Deposit\n\nThree months are due.\n\n"
        "# Annex\n\nKeys: four.\n"
    )
    config = ChunkConfig(chunk_chars=50, parent_chars=60)
    found = chunk(source(text, markdown_outline(text), title="contract"), config)
    assert [(each.heading, each.text.split("\n")[0]) for each in found] == [
        ("contract > Lease", "# Lease"),
        ("contract > Lease > Deposit", "## Deposit"),
        ("contract > Annex", "# Annex"),
    ]


def test_text_without_any_break_is_cut_all_the_same() -> None:
    config = ChunkConfig(chunk_chars=10, parent_chars=25)
    assert {len(each.text) for each in chunk(source("x" * 1000), config)} <= set(range(4, 11))


@pytest.mark.parametrize(
    "bad", [{"chunk_chars": 3}, {"parent_chars": 10}, {"min_share": 0.0}, {"min_share": 0.6}]
)
def test_senseless_sizes_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must"):
        ChunkConfig(**bad)  # type: ignore[arg-type]
