"""A worker process that kills itself at one stage; run by the crash tests only.

`python -m tests.ingest.crashing_worker DATA_DIR STAGE`
"""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ingest.ledger import Ledger, Outcome
from ingest.pipeline import Pipeline, PipelineConfig
from ingest.placements import Placed, Placement, Placements
from ingest.texts import KeptText, TextStore
from ingest.worker import Worker, WorkerConfig
from retrieval.api import Candidates, EmbeddedChunk, Store, StoreQuery
from retrieval.embedder import FakeEmbedder
from retrieval.stores.lance import LanceStore
from tests.ingest.house import SMALL_CHUNKS, handler_of, open_house

STAGES = ("text", "write", "count", "finish", "finished", "deleting", "deleted")
PLACE_STAGES = ("place-write", "place-count", "place-finish", "place-finished")
CLEAR_STAGES = ("place-deleting", "place-deleted")


def die_at(stage: str, here: str) -> None:
    if stage == here:
        os.kill(os.getpid(), signal.SIGKILL)


def named(stage: str, collection: str) -> str:
    """The same stage in a vector store is another one."""
    return f"place-{stage}" if collection else stage


class MortalStore:
    def __init__(self, inner: Store, stage: str) -> None:
        self._inner, self._stage = inner, stage

    async def write(self, chunks: Sequence[EmbeddedChunk]) -> None:
        await self._inner.write(chunks)
        die_at(self._stage, named("write", chunks[0].chunk.collection))

    async def search(self, query: StoreQuery) -> Candidates:
        return await self._inner.search(query)

    async def delete(
        self, document_id: str, *, collection: str = "", keep_generation: str | None = None
    ) -> None:
        before = "finished" if keep_generation else "deleting"
        die_at(self._stage, named(before, collection))
        await self._inner.delete(
            document_id, collection=collection, keep_generation=keep_generation
        )
        die_at(self._stage, "" if keep_generation else named("deleted", collection))

    async def count(self, document_id: str, generation: str, *, collection: str = "") -> int:
        die_at(self._stage, named("count", collection))
        return await self._inner.count(document_id, generation, collection=collection)

    async def aclose(self) -> None:
        await self._inner.aclose()


class MortalTexts(TextStore):
    stage = ""

    async def put(self, file_id: str, kept: KeptText) -> None:
        await super().put(file_id, kept)
        die_at(self.stage, "text")


class MortalLedger(Ledger):
    stage = ""

    async def finish(self, file_id: str, outcome: Outcome) -> bool:
        die_at(self.stage, "finish")
        return await super().finish(file_id, outcome)


class MortalPlacements(Placements):
    stage = ""

    async def finish(self, placement: Placement, placed: Placed) -> bool:
        die_at(self.stage, "place-finish")
        return await super().finish(placement, placed)


async def main(data_dir: Path, stage: str) -> None:
    store = MortalStore(await LanceStore.open(data_dir / "index", FakeEmbedder()), stage)
    async with open_house(data_dir, store=store) as house:
        texts, ledger = MortalTexts(house.blobs), MortalLedger(house.database)
        placements = MortalPlacements(house.database, clock=time.time)
        texts.stage = ledger.stage = placements.stage = stage
        rooms = replace(house.rooms, texts=texts, ledger=ledger)
        config = PipelineConfig(chunks=SMALL_CHUNKS, batch_chunks=4)
        pipeline = Pipeline(rooms, config, clock=lambda: 0.0)
        handler = handler_of(rooms, pipeline, placements)
        await Worker(house.queue, handler, WorkerConfig()).run_until_idle()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
