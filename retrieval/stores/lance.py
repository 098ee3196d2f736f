"""The embedded store: one LanceDB table in a folder.

A write is one commit: after kill -9 it is there whole or not at all. One writer at a time, by
a lock within the process and a file lock between processes; readers see every commit at once.
"""

import asyncio
import fcntl
import logging
import re
import shutil
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from pathlib import Path

import lancedb
import numpy as np
import pyarrow as pa
from lancedb.query import MatchQuery

from retrieval.analyzer import ANALYZER_VERSION
from retrieval.api import (
    LIBRARY,
    Candidates,
    EmbeddedChunk,
    Embedder,
    Hit,
    IndexMismatch,
    SearchUnavailable,
    StoreQuery,
)
from retrieval.config import StoreConfig
from retrieval.filters import check_filter
from retrieval.stores.lance_indexes import TableIndexes
from retrieval.stores.lance_rows import Ranked, TableRows
from retrieval.stores.lance_sql import document_sql, quoted, scope_sql
from retrieval.stores.rows import LAYOUT, check_embedded, chunk_row

logger = logging.getLogger(__name__)

_TABLE_NAME = re.compile(r"chunks_(\d+)\.lance")
"""The number is the index version: re-embedding fills the next one."""

_REFINE = 10
"""An approximate vector search fetches this many times the candidates and rescores them exactly."""

_RANKINGS = 3
"""Compaction can move rows between ranking and reading them; each try ranks anew."""

_LIBRARY_ERRORS = (RuntimeError, ValueError, OSError)
"""What lancedb raises when its files cannot be read."""


class LanceStore:
    """A `Store` in a folder of this machine."""

    def __init__(
        self, table: "lancedb.AsyncTable", folder: Path, dimension: int, config: StoreConfig
    ) -> None:
        self._table = table
        self._folder = folder
        self._dimension = dimension
        self._rows = TableRows(table, config.copied_bytes)
        self._indexes = TableIndexes(table, config)
        self._lock = asyncio.Lock()
        self._folds: set[asyncio.Task[None]] = set()
        self._fold_waits = False

    @classmethod
    async def open(
        cls, folder: Path, embedder: Embedder, config: StoreConfig | None = None
    ) -> "LanceStore":
        """Open or create the index. Raises IndexMismatch when another embedder filled it."""
        await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
        schema = table_schema(embedder)
        async with file_lock(folder):
            number = await asyncio.to_thread(current_version, folder)
            if number is not None:
                table = await open_table(folder, table_name(number))
            else:
                table = await create_table(folder, table_name(1), embedder)
        check_identity(await table.schema(), schema)
        return cls(table, folder, embedder.dimension, config or StoreConfig())

    async def write(self, chunks: Sequence[EmbeddedChunk]) -> None:
        if not chunks:
            return
        rows = await asyncio.to_thread(self._as_table, chunks)
        async with self._writing():
            merge = self._table.merge_insert("id")
            await merge.when_matched_update_all().when_not_matched_insert_all().execute(rows)
        self._fold_soon()

    async def search(self, query: StoreQuery) -> Candidates:
        if query.document_ids is not None and not query.document_ids:
            return Candidates(lexical=[], vector=[])
        if query.filter is not None:
            check_filter(query.filter)
        scope = scope_sql(query)
        with _translated("searched"):
            if not self._indexes.are_there:
                async with self._writing():
                    if not await self._indexes.ensure():
                        return Candidates(lexical=[], vector=[])
            for _ in range(_RANKINGS):
                if (found := await self._found(query, scope)) is not None:
                    return found
        raise SearchUnavailable(f"the index was rewritten {_RANKINGS} times during the search")

    async def delete(
        self, document_id: str, *, collection: str = LIBRARY, keep_generation: str | None = None
    ) -> None:
        rows = document_sql(collection, document_id)
        if keep_generation is not None:
            rows += f" AND generation <> {quoted(keep_generation)}"
            # Nobody writes an older generation any more, so there is no writer to wait for.
            if not await self._count(rows):
                return
        async with self._writing():
            if not await self._table.count_rows(rows):
                return
            await self._table.delete(rows)
        self._fold_soon()

    async def count(self, document_id: str, generation: str, *, collection: str = LIBRARY) -> int:
        return await self._count(
            f"{document_sql(collection, document_id)} AND generation = {quoted(generation)}"
        )

    async def settle(self) -> None:
        """Wait until the indexes are as the last write wants them."""
        if self._folds:
            await asyncio.wait(self._folds)

    async def aclose(self) -> None:
        await self.settle()
        async with self._lock:
            self._table.close()  # type: ignore[no-untyped-call]

    @asynccontextmanager
    async def _writing(self) -> AsyncIterator[None]:
        with _translated("written"):
            async with self._lock, file_lock(self._folder):
                yield

    async def _count(self, rows: str) -> int:
        with _translated("counted"):
            return int(await self._table.count_rows(rows))

    def _fold_soon(self) -> None:
        """Bring the indexes up to date when the writer is free; who wrote need not wait, because
        searches also scan what no index holds."""
        if self._fold_waits:
            return
        self._fold_waits = True
        task = asyncio.create_task(self._fold())
        self._folds.add(task)
        task.add_done_callback(self._folds.discard)

    async def _fold(self) -> None:
        try:
            async with self._writing():
                self._fold_waits = False
                await self._indexes.keep_fresh()
        except SearchUnavailable as error:
            self._fold_waits = False
            logger.warning("indexes are not up to date", extra={"cause": str(error)})

    async def _found(self, query: StoreQuery, scope: str) -> Candidates | None:
        """None when rows were moved or deleted after they were ranked."""
        lexical, vector, num_searched = await asyncio.gather(
            self._lexical(query, scope),
            self._vector(query, scope),
            self._table.count_rows(scope),
        )
        row_ids = dict.fromkeys((*lexical.row_ids, *vector.row_ids))
        rows = await self._rows.get(row_ids)
        if len(rows) < len(row_ids):
            return None
        return Candidates(
            lexical=_hits(lexical, rows), vector=_hits(vector, rows), num_searched=num_searched
        )

    async def _lexical(self, query: StoreQuery, scope: str) -> Ranked:
        if not query.terms.strip():
            return Ranked([], [])
        # The fields' defaults are pydantic's, which mypy does not see.
        match = MatchQuery(query.terms, "terms")  # type: ignore[call-arg]
        search = self._table.query().nearest_to_text(match)
        found = search.where(scope).limit(query.num_candidates).select(["_score"])
        rows = await found.with_row_id().to_arrow()
        return Ranked(rows["_rowid"].to_pylist(), rows["_score"].to_pylist())

    async def _vector(self, query: StoreQuery, scope: str) -> Ranked:
        search = self._table.query().nearest_to(list(query.vector)).distance_type("cosine")
        if self._indexes.approximate:
            search = search.refine_factor(_REFINE)
        found = search.where(scope).limit(query.num_candidates).select(["_distance"])
        rows = await found.with_row_id().to_arrow()
        distances = rows["_distance"].to_pylist()
        return Ranked(rows["_rowid"].to_pylist(), [1.0 - distance for distance in distances])

    def _as_table(self, chunks: Sequence[EmbeddedChunk]) -> pa.Table:
        """One row per chunk id, the last of equal ids winning."""
        latest = {embedded.chunk.id: embedded for embedded in chunks}
        for embedded in latest.values():
            check_embedded(embedded)
            if len(embedded.vector) != self._dimension:
                raise ValueError(f"vectors must have {self._dimension} numbers")
        rows = [chunk_row(embedded.chunk) for embedded in latest.values()]
        vectors = np.array([embedded.vector for embedded in latest.values()], dtype=np.float32)
        schema = _columns(self._dimension)
        columns = {name: [row[name] for row in rows] for name in rows[0]}
        # The vectors' numbers as Python objects would take longer than all the rest.
        columns["vector"] = pa.FixedSizeListArray.from_arrays(vectors.ravel(), self._dimension)
        return pa.table([columns[field.name] for field in schema], schema=schema)


def _columns(dimension: int) -> pa.Schema:
    text = ("id", "collection", "document_id", "generation", "text", "heading", "terms")
    places = ("start", "stop", "parent_start", "parent_stop")
    return pa.schema(
        [
            *(pa.field(name, pa.string(), nullable=False) for name in text),
            *(pa.field(name, pa.int64(), nullable=False) for name in places),
            pa.field("attributes", pa.json_(), nullable=False),
            pa.field("vector", pa.list_(pa.float32(), dimension), nullable=False),
        ]
    )


def table_schema(embedder: Embedder) -> pa.Schema:
    metadata = {
        "embedder": embedder.identity,
        "dimension": str(embedder.dimension),
        "analyzer": ANALYZER_VERSION,
        "layout": LAYOUT,
    }
    return _columns(embedder.dimension).with_metadata(metadata)


def check_identity(found: pa.Schema, expected: pa.Schema) -> None:
    """Raises IndexMismatch when another embedder, analyzer or layout made the table."""
    ours, theirs = (schema.metadata or {} for schema in (expected, found))
    if theirs.get(b"embedder") != ours[b"embedder"]:
        name = theirs.get(b"embedder", b"something else").decode()
        raise IndexMismatch(found=name, expected=ours[b"embedder"].decode())
    if theirs != ours:
        raise IndexMismatch(found=_described(theirs), expected=_described(ours))


def _described(metadata: Mapping[bytes, bytes]) -> str:
    embedder, dimension, analyzer, layout = (
        metadata.get(key, b"1").decode()
        for key in (b"embedder", b"dimension", b"analyzer", b"layout")
    )
    return f"{embedder} with {dimension} numbers, analyzer {analyzer} and layout {layout}"


def current_version(folder: Path) -> int | None:
    """The newest table's number; one without a manifest, left by a killed process, is removed."""
    numbers = []
    for table in folder.iterdir():
        if match := _TABLE_NAME.fullmatch(table.name):
            if any(table.glob("_versions/*.manifest")):
                numbers.append(int(match[1]))
            else:
                shutil.rmtree(table, ignore_errors=True)
    return max(numbers, default=None)


def table_name(number: int) -> str:
    return f"chunks_{number}"


async def open_table(folder: Path, name: str) -> "lancedb.AsyncTable":
    return await (await _connect(folder)).open_table(name)


async def create_table(folder: Path, name: str, embedder: Embedder) -> "lancedb.AsyncTable":
    return await (await _connect(folder)).create_table(name, schema=table_schema(embedder))


async def _connect(folder: Path) -> "lancedb.AsyncConnection":
    return await lancedb.connect_async(str(folder), read_consistency_interval=timedelta(0))


@asynccontextmanager
async def file_lock(folder: Path) -> AsyncIterator[None]:
    """Held by one process at a time; the system lets go of it when that process dies."""
    with (folder / "writer.lock").open("w") as file:
        await asyncio.to_thread(fcntl.flock, file, fcntl.LOCK_EX)
        yield


@contextmanager
def _translated(deed: str) -> Iterator[None]:
    try:
        yield
    except _LIBRARY_ERRORS as error:
        raise SearchUnavailable(f"the index cannot be {deed}: {error}") from error


def _hits(ranked: Ranked, rows: Mapping[int, EmbeddedChunk]) -> list[Hit]:
    hits = [
        Hit(row.chunk, score, row.vector)
        for row_id, score in zip(ranked.row_ids, ranked.scores, strict=True)
        for row in [rows[row_id]]
    ]
    return sorted(hits, key=lambda hit: (-hit.score, hit.chunk.id))
