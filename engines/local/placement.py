"""Which rank holds which tokens, and which tiles of the attention matrix that leaves to compute.

Pure arithmetic on positions; knows no tensors and no processes. Every rank calls it with equal
arguments and gets equal answers, so nothing about placement is ever communicated.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from itertools import pairwise
from typing import NamedTuple

PAGE_TOKENS = 16


class Run(NamedTuple):
    """Consecutive token positions [start, start + length)."""

    start: int
    length: int

    @property
    def stop(self) -> int:
        return self.start + self.length


Shares = tuple[tuple[Run, ...], ...]
"""What each rank holds of a range, in the order in which it stores it."""


class Rule(Enum):
    """How the rows of a tile see its keys."""

    FULL = auto()
    DIAGONAL = auto()
    """Square and causal: row i sees keys 0..i."""
    MASKED = auto()
    """Decided per element from the positions: causal, inside the sliding window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tile:
    """Rows [row, row + num_rows) of the queries against stored keys [key, key + num_keys).

    `first_query` and `first_key` are the positions of the first row and the first key; they mean
    something for MASKED tiles only, because a FULL tile may join keys that lie apart.
    """

    rule: Rule
    row: int
    num_rows: int
    key: int
    num_keys: int
    first_query: int
    first_key: int


def zigzag(start: int, stop: int, num_ranks: int) -> Shares:
    """Cut [start, stop) in 2N pieces; rank i takes pieces i and 2N-1-i: equal causal work.

    The last token always lands on rank 0.
    """
    edges = _edges(start, stop, 2 * num_ranks)
    pieces = [Run(a, b - a) for a, b in pairwise(edges)]
    return tuple(
        joined((), (pieces[rank], pieces[2 * num_ranks - 1 - rank])) for rank in range(num_ranks)
    )


def deal(start: int, stop: int, num_ranks: int) -> Shares:
    """Cut [start, stop) in N consecutive pieces, some of them perhaps empty."""
    edges = _edges(start, stop, num_ranks)
    return tuple(
        joined((), (Run(edges[rank], edges[rank + 1] - edges[rank]),)) for rank in range(num_ranks)
    )


def page_owner(position: int, num_ranks: int) -> int:
    """Decoded tokens go round-robin in pages: no rank fills first, and runs stay long."""
    return position // PAGE_TOKENS % num_ranks


def paged(position: int, num_ranks: int) -> Shares:
    """One decoded token, on the owner of its page."""
    owner = page_owner(position, num_ranks)
    return tuple((Run(position, 1),) if rank == owner else () for rank in range(num_ranks))


def joined(held: Sequence[Run], new: Sequence[Run]) -> tuple[Run, ...]:
    """`held` followed by `new` in storage order; empty runs vanish, touching runs become one."""
    runs = list(held)
    for run in new:
        if run.length == 0:
            continue
        if runs and runs[-1].stop == run.start:
            runs[-1] = Run(runs[-1].start, runs[-1].length + run.length)
        else:
            runs.append(run)
    return tuple(runs)


class Piece(NamedTuple):
    """A run as it lies in a shard: at the stored tokens [offset, offset + run.length)."""

    offset: int
    run: Run


def pieces_from(runs: Sequence[Run], first: int) -> tuple[Piece, ...]:
    """What a shard with these runs holds of the positions from `first` on, in storage order."""
    pieces: list[Piece] = []
    offset = 0
    for run in runs:
        kept = _between(max(run.start, first), run.stop)
        if kept.length:
            pieces.append(Piece(offset + kept.start - run.start, kept))
        offset += run.length
    return tuple(pieces)


def num_tokens(runs: Sequence[Run]) -> int:
    return sum(run.length for run in runs)


def positions_of(runs: Sequence[Run]) -> list[int]:
    return [position for run in runs for position in range(run.start, run.stop)]


def plan_tiles(
    query_runs: Sequence[Run], key_runs: Sequence[Run], window: int | None = None
) -> tuple[Tile, ...]:
    """Every (row, key) pair with key <= row, and within `window` of it, in exactly one tile.

    Runs are given in storage order. No tile is empty. FULL tiles whose keys are stored side by
    side are one tile, wherever those keys stand in the text, and so are rows that lie side by
    side and see the same keys: few large tiles run faster than many.
    """
    tiles: list[Tile] = []
    row = 0
    for queries in query_runs:
        for tile in _joined_keys(_tiles_of_run(row, queries, key_runs, window)):
            _stack(tiles, tile)
        row += queries.length
    return tuple(tiles)


def _tiles_of_run(
    row: int, queries: Run, key_runs: Sequence[Run], window: int | None
) -> Iterator[Tile]:
    offset = 0
    for keys in key_runs:
        for tile_queries, tile_keys, rule in _cuts(queries, keys, window):
            yield Tile(
                rule=rule,
                row=row + tile_queries.start - queries.start,
                num_rows=tile_queries.length,
                key=offset + tile_keys.start - keys.start,
                num_keys=tile_keys.length,
                first_query=tile_queries.start,
                first_key=tile_keys.start,
            )
        offset += keys.length


def _cuts(queries: Run, keys: Run, window: int | None) -> Iterator[tuple[Run, Run, Rule]]:
    if window is not None:
        yield from _windowed_cut(queries, keys, window)
        return
    past = _between(keys.start, min(keys.stop, queries.start))
    if past.length:
        yield queries, past, Rule.FULL
    shared = _between(max(keys.start, queries.start), min(keys.stop, queries.stop))
    if shared.length:
        # A single row sees its own key like any earlier one, and joins the tile of those.
        yield shared, shared, Rule.DIAGONAL if shared.length > 1 else Rule.FULL
        later = _between(shared.stop, queries.stop)
        if later.length:
            yield later, shared, Rule.FULL


def _windowed_cut(queries: Run, keys: Run, window: int) -> Iterator[tuple[Run, Run, Rule]]:
    seen = _between(max(keys.start, queries.start - window + 1), min(keys.stop, queries.stop))
    seeing = _between(max(queries.start, seen.start), min(queries.stop, seen.stop + window - 1))
    if seen.length == 0 or seeing.length == 0:
        return
    all_past = seen.stop - 1 <= seeing.start
    all_near = seen.start > seeing.stop - 1 - window
    yield seeing, seen, Rule.FULL if all_past and all_near else Rule.MASKED


def _joined_keys(tiles: Iterator[Tile]) -> list[Tile]:
    out: list[Tile] = []
    for tile in tiles:
        last = out[-1] if out else None
        if last is not None and _continues(last, tile):
            out[-1] = replace(last, num_keys=last.num_keys + tile.num_keys)
        else:
            out.append(tile)
    return out


def _stack(tiles: list[Tile], tile: Tile) -> None:
    """Add a tile; the keys that it shares with the rows right above it become one tile of both."""
    for i, upper in enumerate(tiles):
        if (
            upper.rule is tile.rule is Rule.FULL
            and upper.row + upper.num_rows == tile.row
            and upper.key == tile.key
        ):
            num_shared = min(upper.num_keys, tile.num_keys)
            num_rows = upper.num_rows + tile.num_rows
            tiles[i] = replace(upper, num_rows=num_rows, num_keys=num_shared)
            longer = max(upper, tile, key=lambda one: one.num_keys)
            num_left = longer.num_keys - num_shared
            if num_left:
                tiles.append(replace(longer, key=longer.key + num_shared, num_keys=num_left))
            return
    tiles.append(tile)


def _continues(last: Tile, tile: Tile) -> bool:
    return (
        last.rule is tile.rule is Rule.FULL
        and (last.row, last.num_rows) == (tile.row, tile.num_rows)
        and last.key + last.num_keys == tile.key
    )


def _between(start: int, stop: int) -> Run:
    return Run(start, max(0, stop - start))


def _edges(start: int, stop: int, pieces: int) -> list[int]:
    return [start + (stop - start) * i // pieces for i in range(pieces + 1)]
