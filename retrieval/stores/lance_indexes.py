"""When the indexes of a LanceDB table are built, folded and made anew; reads and writes no chunk.

Until new rows are folded in, searches scan them beside the indexes: every write is found at once.
"""

import logging
from datetime import timedelta

import lancedb
from lancedb.index import FTS, Bitmap, BTree, IvfFlat, IvfPq

from retrieval.config import StoreConfig

logger = logging.getLogger(__name__)

_KEEP_VERSIONS = timedelta(minutes=10)
"""A reader holds a version for one search; older ones are only disk space."""

_TEXT_INDEX = "terms_text"
_ANN_INDEX = "vector_ann"
_SCAN_INDEX = "vector_scan"
_SCAN_CONFIG = IvfFlat(distance_type="cosine", num_partitions=1)
"""One partition, so the search stays exact: it only reads vectors that lie side by side, which
takes 5 instead of 10 ms of processor time for 10,000."""

_MAX_SCAN_PARTS = 8
"""Making the index anew takes 0.2 s for 10,000 vectors, each part of it 0.4 ms of a search."""

_TEXT_CONFIG = FTS(
    base_tokenizer="whitespace",
    lower_case=False,
    stem=False,
    remove_stop_words=False,
    ascii_folding=False,
    max_token_length=None,
)
"""Terms come analysed; the index must only cut them at the spaces."""

_INDEXES: dict[str, tuple[str, FTS | Bitmap | BTree]] = {
    _TEXT_INDEX: ("terms", _TEXT_CONFIG),
    "collection_scope": ("collection", Bitmap()),
    "document_scope": ("document_id", BTree()),
}
"""Those of the scope take a search of 10,000 chunks from 46 to 31 ms of processor time."""


class TableIndexes:
    """Only the table's one writer may call what changes indexes."""

    def __init__(self, table: "lancedb.AsyncTable", config: StoreConfig) -> None:
        self._table = table
        self._config = config
        self._num_commits = 0
        self.are_there = False
        self.approximate = False
        """Vectors are searched approximately: results are to be rescored."""

    async def ensure(self) -> bool:
        """Build the indexes once there are rows: on an empty table full text stays empty."""
        if not self.are_there:
            names = {index.name for index in await self._table.list_indices()}
            missing = {name: each for name, each in _INDEXES.items() if name not in names}
            if missing and not await self._table.count_rows():
                return False
            for name, (column, config) in missing.items():
                await self._table.create_index(column, config=config, name=name)
            self.approximate = _ANN_INDEX in names
            self.are_there = True
        return True

    async def keep_fresh(self) -> None:
        """After a commit: fold new rows in before they are many."""
        self._num_commits += 1
        if not await self.ensure():
            return
        stats = await self._table.index_stats(_TEXT_INDEX)
        assert stats is not None
        allowed = self._config.optimize_share * stats.num_indexed_rows
        is_stale = stats.num_unindexed_rows > allowed
        if is_stale or self._num_commits >= self._config.optimize_commits:
            await self._drop_worn_scan_index()
            await self._table.optimize(cleanup_older_than=_KEEP_VERSIONS)
            self._num_commits = 0
        await self._ensure_vector_index()

    async def _drop_worn_scan_index(self) -> None:
        """Every folding adds a part to it, and fragments of different parts cannot be compacted."""
        stats = await self._table.index_stats(_SCAN_INDEX)
        if stats is not None and (stats.num_indices or 0) >= _MAX_SCAN_PARTS:
            await self._table.drop_index(_SCAN_INDEX)

    async def _ensure_vector_index(self) -> None:
        """Keep vectors side by side once they are many, and search them approximately once they
        are too many to be read for every question."""
        names = {index.name for index in await self._table.list_indices()}
        num_rows = await self._table.count_rows()
        if num_rows >= self._config.ann_min_rows and _ANN_INDEX not in names:
            logger.info("building the vector index", extra={"rows": num_rows})
            await self._table.create_index(
                "vector", config=IvfPq(distance_type="cosine"), name=_ANN_INDEX
            )
            if _SCAN_INDEX in names:
                await self._table.drop_index(_SCAN_INDEX)
            names.add(_ANN_INDEX)
        elif num_rows >= self._config.scan_index_min_rows and not names & {_SCAN_INDEX, _ANN_INDEX}:
            await self._table.create_index("vector", config=_SCAN_CONFIG, name=_SCAN_INDEX)
        self.approximate = _ANN_INDEX in names
