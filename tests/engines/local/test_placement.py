"""Placement arithmetic, by property: nothing is lost, nothing is counted twice, work is equal."""

from hypothesis import given
from hypothesis import strategies as st

from engines.local.placement import (
    PAGE_TOKENS,
    Rule,
    Run,
    Tile,
    deal,
    joined,
    num_tokens,
    page_owner,
    paged,
    pieces_from,
    plan_tiles,
    positions_of,
    zigzag,
)

ranks = st.integers(1, 6)
ranges = st.tuples(st.integers(0, 300), st.integers(0, 300)).map(lambda t: (t[0], t[0] + t[1]))


def pairs_of(
    tile: Tile, rows: list[int], keys: list[int], window: int | None
) -> list[tuple[int, int]]:
    """(query position, key position) pairs that the tile computes."""
    pairs = []
    for i in range(tile.num_rows):
        for j in range(tile.num_keys):
            query, key = rows[tile.row + i], keys[tile.key + j]
            if tile.rule is Rule.DIAGONAL and j > i:
                continue
            if tile.rule is Rule.MASKED:
                query, key = tile.first_query + i, tile.first_key + j
                if key > query or (window is not None and key <= query - window):
                    continue
            pairs.append((query, key))
    return pairs


@st.composite
def run_lists(draw: st.DrawFn) -> list[Run]:
    """Disjoint runs of [0, 60) in any order."""
    edges = sorted(draw(st.sets(st.integers(0, 60), min_size=2, max_size=8)))
    runs = [Run(a, b - a) for a, b in zip(edges[::2], edges[1::2], strict=False)]
    return draw(st.permutations(runs))


@given(queries=run_lists(), keys=run_lists(), window=st.none() | st.integers(1, 40))
def test_tiles_hold_every_visible_pair_exactly_once(
    queries: list[Run], keys: list[Run], window: int | None
) -> None:
    rows, stored = positions_of(queries), positions_of(keys)
    got = [
        pair
        for tile in plan_tiles(queries, keys, window)
        for pair in pairs_of(tile, rows, stored, window)
    ]
    wanted = [(q, k) for q in rows for k in stored if k <= q and (window is None or k > q - window)]
    assert sorted(got) == sorted(wanted)


@given(queries=run_lists(), keys=run_lists(), window=st.none() | st.integers(1, 40))
def test_no_tile_is_empty(queries: list[Run], keys: list[Run], window: int | None) -> None:
    assert all(t.num_rows > 0 and t.num_keys > 0 for t in plan_tiles(queries, keys, window))


@given(bounds=ranges, num_ranks=ranks)
def test_zigzag_gives_every_token_to_one_rank(bounds: tuple[int, int], num_ranks: int) -> None:
    shares = zigzag(*bounds, num_ranks)
    assert sorted(p for runs in shares for p in positions_of(runs)) == list(range(*bounds))


@given(bounds=ranges, num_ranks=ranks)
def test_the_last_token_of_a_zigzag_is_the_last_row_of_rank_0(
    bounds: tuple[int, int], num_ranks: int
) -> None:
    start, stop = bounds
    if stop - start >= 2 * num_ranks:
        assert positions_of(zigzag(start, stop, num_ranks)[0])[-1] == stop - 1
        assert all(zigzag(start, stop, num_ranks))


def test_zigzag_work_is_equal() -> None:
    work = [sum(position + 1 for position in positions_of(runs)) for runs in zigzag(0, 4096, 4)]
    assert max(work) - min(work) == 0


def test_zigzag_of_one_chunk_needs_no_mask_and_few_tiles() -> None:
    shares = zigzag(512, 1024, 2)
    earlier = zigzag(0, 512, 2)
    held = joined(earlier[1], shares[1])
    tiles = plan_tiles(shares[0], held)
    assert [t.rule for t in tiles] == [Rule.FULL, Rule.FULL]
    assert [(t.num_rows, t.num_keys) for t in tiles] == [(256, 256), (128, 256)]


@given(bounds=ranges, num_ranks=ranks)
def test_deal_gives_every_token_to_one_rank_in_order(
    bounds: tuple[int, int], num_ranks: int
) -> None:
    shares = deal(*bounds, num_ranks)
    assert [p for runs in shares for p in positions_of(runs)] == list(range(*bounds))


@given(num_ranks=ranks)
def test_decoded_pages_go_round(num_ranks: int) -> None:
    owners = [page_owner(p, num_ranks) for p in range(PAGE_TOKENS * num_ranks)]
    assert [owners.count(rank) for rank in range(num_ranks)] == [PAGE_TOKENS] * num_ranks
    assert sum(num_tokens(runs) for runs in paged(17, num_ranks)) == 1


def test_touching_runs_become_one_and_empty_ones_vanish() -> None:
    assert joined((Run(0, 4),), (Run(4, 0), Run(4, 2), Run(8, 1))) == (Run(0, 6), Run(8, 1))


@given(runs=run_lists(), first=st.integers(0, 61))
def test_pieces_are_what_a_shard_holds_from_a_position_on(runs: list[Run], first: int) -> None:
    stored = positions_of(runs)
    pieces = pieces_from(runs, first)
    assert all(piece.run.length > 0 for piece in pieces)
    assert positions_of([piece.run for piece in pieces]) == [p for p in stored if p >= first]
    for offset, run in pieces:
        assert stored[offset : offset + run.length] == positions_of([run])
