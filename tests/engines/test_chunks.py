"""Where a prompt is cut, and which chunks are chosen."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from engines.chunks import ChunkPlan, choose_chunks, plan_chunks
from engines.config import HierarchicalConfig

CONFIG = HierarchicalConfig(chunk_tokens=64, anchor_tokens=8, top_k=2)


def plan_of(lengths: Sequence[int]) -> ChunkPlan:
    """Chunks of these lengths, read without what stands before them."""
    chunks, start = [], 10
    for length in lengths:
        chunks.append((start, start + length))
        start += length
    return ChunkPlan(
        anchor_stop=10,
        chunks=tuple(chunks),
        read_from=tuple(start for start, _ in chunks),
        question_start=start,
        num_tokens=start + 5,
    )


@given(
    num_tokens=st.integers(1, 2000),
    question_start=st.integers(0, 2100),
    documents=st.lists(st.integers(0, 2000), max_size=8, unique=True).map(sorted),
)
def test_anchor_chunks_and_question_tile_the_prompt(
    num_tokens: int, question_start: int, documents: list[int]
) -> None:
    plan = plan_chunks(num_tokens, question_start, documents, CONFIG)
    edges = [(0, plan.anchor_stop), *plan.chunks, (plan.question_start, plan.num_tokens)]
    covered = [token for start, stop in edges for token in range(start, stop)]
    assert covered == list(range(num_tokens))
    assert all(0 < stop - start <= CONFIG.chunk_tokens for start, stop in plan.chunks)


@given(num_tokens=st.integers(1, 200), question_start=st.integers(0, 300))
def test_the_question_is_never_empty(num_tokens: int, question_start: int) -> None:
    plan = plan_chunks(num_tokens, question_start, (), CONFIG)
    assert plan.question_start < num_tokens


def test_a_chunk_ends_at_a_document_and_a_crumb_joins_its_neighbour() -> None:
    plan = plan_chunks(200, 150, (40, 43, 90), CONFIG)
    assert plan.chunks == ((8, 40), (40, 90), (90, 150))


@given(num_tokens=st.integers(100, 1000), documents=st.lists(st.integers(0, 1000)).map(sorted))
def test_a_chunk_is_read_with_what_stands_before_it_in_the_same_document(
    num_tokens: int, documents: list[int]
) -> None:
    plan = plan_chunks(num_tokens, num_tokens - 10, documents, CONFIG)
    starts = [start for start, _ in plan.chunks]
    for chunk, (start, stop) in enumerate(plan.chunks):
        read_from, read_to = plan.read(chunk)
        assert read_to == stop
        assert start - read_from in (0, CONFIG.overlap_tokens)
        assert stop - read_from <= CONFIG.longest_read
        crossed = [d for d in documents if read_from < d <= start and d in starts]
        assert crossed == []


@given(
    num_tokens=st.integers(100, 1000),
    documents=st.lists(st.integers(0, 1000), unique=True).map(sorted),
)
def test_no_run_as_long_as_the_overlap_is_torn_at_a_border(
    num_tokens: int, documents: list[int]
) -> None:
    plan = plan_chunks(num_tokens, num_tokens - 10, documents, CONFIG)
    reads = [plan.read(chunk) for chunk in range(len(plan.chunks))]
    starts = [start for start, _ in plan.chunks]
    apart = [d for d in documents if d in starts]
    for first in range(plan.anchor_stop, plan.question_start - CONFIG.overlap_tokens):
        last = first + CONFIG.overlap_tokens
        if not any(first < border < last for border in apart):
            assert any(start <= first and last <= stop for start, stop in reads), first


@given(num_tokens=st.integers(100, 1000), more=st.integers(0, 500))
def test_a_prompt_that_goes_on_is_cut_in_the_same_places(num_tokens: int, more: int) -> None:
    shorter = plan_chunks(num_tokens, num_tokens - 10, (50,), CONFIG)
    longer = plan_chunks(num_tokens + more, num_tokens + more - 10, (50,), CONFIG)
    whole = list(shorter.chunks[:-1])
    assert list(longer.chunks[: len(whole)]) == whole


def test_neighbours_that_are_both_chosen_do_not_overlap() -> None:
    plan = plan_chunks(400, 390, (), CONFIG)
    assert plan.spans((3, 0, 1)) == ((8, 72), (72, 136), (192, 264))


@given(
    lengths=st.lists(st.integers(1, 64), max_size=12),
    top_k=st.integers(1, 6),
    budget=st.integers(-10, 200),
    order=st.permutations(range(12)),
)
def test_the_choice_keeps_to_its_number_and_its_budget(
    lengths: list[int], top_k: int, budget: int, order: list[int]
) -> None:
    known = [chunk for chunk in order if chunk < len(lengths)]
    chosen = choose_chunks(known, plan_of(lengths), top_k, budget)
    assert len(chosen) <= top_k
    assert sum(lengths[chunk] for chunk in chosen) <= max(0, budget)
    assert list(chosen) == sorted(set(chosen))


def test_the_first_are_chosen_in_text_order() -> None:
    assert choose_chunks([3, 1, 2, 0], plan_of([5, 5, 5, 5]), 2, 100) == (1, 3)


def test_a_chunk_that_does_not_fit_makes_way_for_a_smaller_one() -> None:
    assert choose_chunks([0, 1, 2], plan_of([50, 60, 5]), 3, 60) == (0, 2)
