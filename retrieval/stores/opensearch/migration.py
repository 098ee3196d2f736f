"""Re-embeds an OpenSearch index into its next version and moves the alias.

Everybody may write until the first pass over all chunks is done. Then the old index is closed for
writes, what changed meanwhile is brought over, and the alias is moved in one step. Writers that
meet the closed index fail transiently and come again; those that still hold the old embedder
after the move are refused. Serverless cannot close an index: there all writers must be stopped.
"""

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

from retrieval.api import Chunk, Embedder, IndexMismatch
from retrieval.config import OpenSearchConfig
from retrieval.migration import Migration, MigrationRefused, Progress, embedded_batches
from retrieval.stores.opensearch.cluster import Cluster
from retrieval.stores.opensearch.documents import (
    SOURCE_FIELDS,
    Json,
    chunk_of,
    identity_of,
    index_body,
)
from retrieval.stores.opensearch.queries import MAX_TERMS, any_value
from retrieval.stores.opensearch.store import OpenSearchStore, until_there
from retrieval.stores.opensearch.versions import Versions, check_identity

_ALL: Json = {"match_all": {}}


class OpenSearchMigration:
    """`restart` takes back what a migration that was cut short left behind; `writers_stopped` is
    the operator's word for it, which only Serverless needs."""

    def __init__(
        self,
        config: OpenSearchConfig,
        embedder: Embedder,
        progress: Progress,
        *,
        restart: bool = False,
        writers_stopped: bool = False,
    ) -> None:
        self._config = config
        self._embedder = embedder
        self._progress = progress
        self._restart = restart
        self._writers_stopped = writers_stopped

    async def run(self) -> Migration:
        """Raises MigrationRefused or SearchUnavailable; the alias then is where it was."""
        cluster = Cluster.connect(self._config)
        try:
            return await self._run(cluster, Versions(cluster, self._config.alias))
        finally:
            await cluster.aclose()

    async def _run(self, cluster: Cluster, versions: Versions) -> Migration:
        old = await versions.current()
        if old is None:
            return Migration(old="nothing", new="nothing", num_chunks=0)
        new = versions.name(versions.number(old) + 1)
        await self._clear_way(versions, old, new)
        if await self._is_current(versions, old):
            return Migration(old=old, new=old, num_chunks=0)
        if not (self._config.has_own_nodes or self._writers_stopped):
            raise MigrationRefused(
                "OpenSearch Serverless cannot close an index for writes: stop every worker and"
                " say so with --writers-stopped"
            )
        dimension = self._embedder.dimension
        source = OpenSearchStore(cluster, old, dimension, self._config)
        target = OpenSearchStore(cluster, new, dimension, self._config)
        if not await versions.create(new, index_body(self._embedder, self._config)):
            raise self._busy(new)
        await until_there(versions, new, self._config)
        async with self._undone_on_failure(versions, old, new):
            num_chunks = await self._copy(versions, source, target, old)
            await versions.point(new, instead_of=old)
        return Migration(old=old, new=new, num_chunks=num_chunks, notes=(_keeps(old),))

    async def _clear_way(self, versions: Versions, old: str, new: str) -> None:
        if not await versions.exists(new):
            return
        if not self._restart:
            raise self._busy(new)
        await versions.drop(new)
        if self._config.has_own_nodes:
            await versions.open_writes(old)

    def _busy(self, new: str) -> MigrationRefused:
        return MigrationRefused(
            f"another migration fills {new}, or one was cut short:"
            " if none is running, begin again with --restart"
        )

    async def _is_current(self, versions: Versions, old: str) -> bool:
        try:
            check_identity(await versions.identity(old), identity_of(self._embedder))
        except IndexMismatch:
            return False
        return True

    @asynccontextmanager
    async def _undone_on_failure(
        self, versions: Versions, old: str, new: str
    ) -> AsyncIterator[None]:
        try:
            yield
        except BaseException:
            await versions.drop(new)
            if self._config.has_own_nodes:
                await versions.open_writes(old)
            raise

    async def _copy(
        self, versions: Versions, source: OpenSearchStore, target: OpenSearchStore, old: str
    ) -> int:
        before = await _places(source)
        await self._bring(source, target, before.keys())
        if self._config.has_own_nodes:
            await versions.close_writes(old)
        now = await _places(source)
        changed = {chunk_id for chunk_id, place in now.items() if before.get(chunk_id) != place}
        await self._bring(source, target, changed)
        await target.remove(sorted((await _places(target)).keys() - now.keys()))
        num_there = len(await _places(target))
        if num_there != len(now):
            raise MigrationRefused(f"the new index holds {num_there} of {len(now)} chunks")
        return num_there

    async def _bring(
        self,
        source: OpenSearchStore,
        target: OpenSearchStore,
        wanted: Collection[str],
    ) -> None:
        if not wanted:
            return
        num_done = 0
        self._progress(0, len(wanted))
        async for batch in embedded_batches(_chunks(source, wanted), self._embedder):
            await target.fill(batch)
            num_done += len(batch)
            self._progress(num_done, len(wanted))


async def _places(store: OpenSearchStore) -> dict[str, str]:
    """By chunk id, what changes whenever the chunk is written."""
    return {each.chunk_id: each.stamp async for each in store.lying(_ALL)}


async def _chunks(store: OpenSearchStore, wanted: Collection[str]) -> AsyncIterator[Chunk]:
    few = len(wanted) <= MAX_TERMS
    query = any_value("chunk_id", sorted(wanted)) if few else _ALL
    async for hit in store.scan(query, fields=SOURCE_FIELDS):
        source = hit["_source"]
        assert isinstance(source, dict), "asked for"
        if source["chunk_id"] in wanted:
            yield chunk_of(source)


def _keeps(old: str) -> str:
    return (
        f"{old} is kept, closed for writes where that is possible:"
        " delete it once every process runs with the new embedder"
    )
