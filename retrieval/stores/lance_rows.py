"""Chunks and vectors of a LanceDB table by row id; of a small table all are kept in memory.

A search ranks row ids and scores first and then needs the rows themselves; reading 240 rows of
3 KB one by one takes as long as ranking 10,000. A row id names a fragment and a place in it.
Fragments are never changed and their numbers never used again, so what lies under an id is the
same for ever, or gone: rewriting a chunk, or moving it when fragments are compacted, gives it
another id. (Tables must not have LanceDB's stable row ids.)
"""

import asyncio
from array import array
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import lancedb
import pyarrow as pa

from retrieval.api import EmbeddedChunk
from retrieval.stores.rows import CHUNK_FIELDS, row_chunk

_COLUMNS = [*CHUNK_FIELDS, "vector"]

_FEW_ROWS = 32
"""Rows that the copy in memory may lack, such as a new file's: reading the table anew for them
would take longer (40 ms for 10,000 rows) than reading them one by one."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """One side of a search: row ids and their scores, best first."""

    row_ids: list[int]
    scores: list[float]


class TableRows:
    """The rows of one table. One of up to `limit_bytes` is copied into memory when it is wanted."""

    def __init__(self, table: "lancedb.AsyncTable", limit_bytes: int) -> None:
        self._table = table
        self._limit_bytes = limit_bytes
        self._copy = _Copy.of(None)
        self._copying = asyncio.Lock()

    async def get(self, row_ids: Collection[int]) -> dict[int, EmbeddedChunk]:
        """The rows by their ids, without those that are not in the table any more."""
        if len(self._copy.lacks(row_ids)) > _FEW_ROWS:
            await self._refresh(row_ids)
        copy = self._copy
        found = copy.take(row_ids)
        if lacking := copy.lacks(row_ids):
            taken = self._table.take_row_ids(lacking).select(_COLUMNS).with_row_id()
            found |= _decoded(await taken.to_arrow())
        return found

    async def _refresh(self, row_ids: Collection[int]) -> None:
        async with self._copying:
            if len(self._copy.lacks(row_ids)) <= _FEW_ROWS:
                return
            rows = None
            stats = await self._table.stats()
            # A dict, whatever its annotation says.
            if stats["total_bytes"] <= self._limit_bytes:  # type: ignore[index]
                rows = await self._table.query().select(_COLUMNS).with_row_id().to_arrow()
            self._copy = _Copy.of(rows)


@dataclass(frozen=True, slots=True)
class _Copy:
    """All rows of a table at one of its versions; those that were found once stay decoded."""

    rows: pa.Table | None
    places: Mapping[int, int]
    """Where in `rows` a row id is."""

    decoded: dict[int, EmbeddedChunk]

    @classmethod
    def of(cls, rows: pa.Table | None) -> "_Copy":
        if rows is None:
            return cls(None, {}, {})
        places = {row_id: place for place, row_id in enumerate(rows["_rowid"].to_pylist())}
        return cls(rows.combine_chunks(), places, {})

    def lacks(self, row_ids: Collection[int]) -> list[int]:
        return [row_id for row_id in row_ids if row_id not in self.places]

    def take(self, row_ids: Collection[int]) -> dict[int, EmbeddedChunk]:
        new = [row_id for row_id in row_ids if row_id not in self.decoded]
        if places := [self.places[row_id] for row_id in new if row_id in self.places]:
            assert self.rows is not None, "there are places only in rows"
            self.decoded.update(_decoded(self.rows.take(places)))
        return {row_id: self.decoded[row_id] for row_id in row_ids if row_id in self.decoded}


def _decoded(rows: pa.Table) -> dict[int, EmbeddedChunk]:
    if not rows.num_rows:
        return {}
    vectors = rows["vector"].combine_chunks().flatten().to_numpy().reshape(rows.num_rows, -1)
    # Column by column, and JSON as the text that it is: a quarter of the table's own to_pylist.
    texts = rows["attributes"].combine_chunks().storage
    columns = [(texts if name == "attributes" else rows[name]).to_pylist() for name in CHUNK_FIELDS]
    chunks = [
        row_chunk(dict(zip(CHUNK_FIELDS, values, strict=True)))
        for values in zip(*columns, strict=True)
    ]
    return {
        row_id: EmbeddedChunk(chunk, array("f", vector.tobytes()))
        for row_id, chunk, vector in zip(rows["_rowid"].to_pylist(), chunks, vectors, strict=True)
    }
