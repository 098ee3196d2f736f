"""A worker process that kills itself at one stage; run by the crash tests only.

`python -m tests.ingest.crashing_worker DATA_DIR STAGE`
"""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ingest.ledger import Ledger, Outcome
from ingest.pipeline import Pipeline, PipelineConfig
from ingest.texts import KeptText, TextStore
from ingest.worker import Worker, WorkerConfig
from retrieval.api import Candidates, EmbeddedChunk, Store, StoreQuery
from retrieval.embedder import FakeEmbedder
from retrieval.stores.lance import LanceStore
from tests.ingest.house import SMALL_CHUNKS, open_house

STAGES = ("text", "write", "count", "finish", "finished", "deleting", "deleted")


def die_at(stage: str, here: str) -> None:
    if stage == here:
        os.kill(os.getpid(), signal.SIGKILL)


class MortalStore:
    def __init__(self, inner: Store, stage: str) -> None:
        self._inner, self._stage = inner, stage

    async def write(self, chunks: Sequence[EmbeddedChunk]) -> None:
        await self._inner.write(chunks)
        die_at(self._stage, "write")

    async def search(self, query: StoreQuery) -> Candidates:
        return await self._inner.search(query)

    async def delete(self, document_id: str, *, keep_generation: str | None = None) -> None:
        die_at(self._stage, "finished" if keep_generation else "deleting")
        await self._inner.delete(document_id, keep_generation=keep_generation)
        die_at(self._stage, "" if keep_generation else "deleted")

    async def count(self, document_id: str, generation: str) -> int:
        die_at(self._stage, "count")
        return await self._inner.count(document_id, generation)

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


async def main(data_dir: Path, stage: str) -> None:
    store = MortalStore(await LanceStore.open(data_dir / "index", FakeEmbedder()), stage)
    async with open_house(data_dir, store=store) as house:
        texts, ledger = MortalTexts(house.blobs), MortalLedger(house.database)
        texts.stage = ledger.stage = stage
        rooms = replace(house.rooms, texts=texts, ledger=ledger)
        config = PipelineConfig(chunks=SMALL_CHUNKS, batch_chunks=4)
        pipeline = Pipeline(rooms, config, clock=lambda: 0.0)
        await Worker(house.queue, ledger, pipeline, WorkerConfig()).run_until_idle()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
