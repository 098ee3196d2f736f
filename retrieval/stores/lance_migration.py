"""Re-embeds a LanceDB index into its next version, while nothing else writes.

    chunks_1.lance ──> migrating.lance ──rename──> chunks_2.lance, then chunks_1 is removed

The rename is the switch: killed before it, the old index is untouched; after it, the new one is
whole. A process that still has the old version open must be started again.
"""

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import lancedb

from retrieval.api import Chunk, Embedder, IndexMismatch
from retrieval.config import StoreConfig
from retrieval.migration import Migration, Progress, embedded_batches
from retrieval.stores.lance import (
    LanceStore,
    check_identity,
    create_table,
    current_version,
    file_lock,
    open_table,
    table_name,
    table_schema,
)
from retrieval.stores.rows import CHUNK_FIELDS, row_chunk

_UNFINISHED = "migrating"
_FIRST_LAYOUT = {"collection": "", "attributes": "{}"}
"""What rows of layout 1 do not say."""


async def migrate_folder(folder: Path, embedder: Embedder, progress: Progress) -> Migration:
    """The caller sees to it that no worker runs: its writes would go to the old version."""
    async with file_lock(folder):
        number = await asyncio.to_thread(current_version, folder)
        if number is None:
            return Migration(old="nothing", new="nothing", num_chunks=0)
        source = await open_table(folder, table_name(number))
        num_chunks = await source.count_rows()
        if _is_current(await source.schema(), embedder):
            return Migration(old=table_name(number), new=table_name(number), num_chunks=num_chunks)
    # The new store locks the folder for its own writes.
    unfinished = folder / f"{_UNFINISHED}.lance"
    await asyncio.to_thread(shutil.rmtree, unfinished, ignore_errors=True)
    table = await create_table(folder, _UNFINISHED, embedder)
    target = LanceStore(table, folder, embedder.dimension, StoreConfig())
    num_done = 0
    progress(0, num_chunks)
    async for batch in embedded_batches(_chunks(source), embedder):
        await target.write(batch)
        num_done += len(batch)
        progress(num_done, num_chunks)
    await target.aclose()
    source.close()  # type: ignore[no-untyped-call]
    async with file_lock(folder):
        await asyncio.to_thread(unfinished.rename, folder / f"{table_name(number + 1)}.lance")
        await asyncio.to_thread(shutil.rmtree, folder / f"{table_name(number)}.lance")
    return Migration(old=table_name(number), new=table_name(number + 1), num_chunks=num_done)


def _is_current(schema: object, embedder: Embedder) -> bool:
    try:
        check_identity(schema, table_schema(embedder))
    except IndexMismatch:
        return False
    return True


async def _chunks(table: "lancedb.AsyncTable") -> AsyncIterator[Chunk]:
    known = {field.name for field in await table.schema()}
    fields = [name for name in CHUNK_FIELDS if name in known]
    async for batch in await table.query().select(fields).to_batches():
        for row in batch.to_pylist():
            yield row_chunk(_FIRST_LAYOUT | row)
