"""Which work belongs to which kind of job. Knows pipeline and placer, no queue."""

from ingest.api import PermanentError
from ingest.jobs import Job, JobKind
from ingest.ledger import Ledger
from ingest.pipeline import Pipeline
from ingest.placing import Placer


class JobHandler:
    def __init__(self, ledger: Ledger, pipeline: Pipeline, placer: Placer) -> None:
        self._ledger = ledger
        self._pipeline = pipeline
        self._placer = placer

    async def run(self, job: Job) -> None:
        match job.kind:
            case JobKind.INGEST:
                await self._pipeline.ingest(job.file_id)
            case JobKind.DELETE:
                await self._pipeline.delete(job.file_id)
            case JobKind.PLACE:
                await self._placer.place(job.collection, job.file_id)

    async def fail(self, job: Job, error: PermanentError) -> None:
        """A removal that fails has no file to tell; its dead letter stays, and the sweep tries
        again."""
        match job.kind:
            case JobKind.INGEST:
                if await self._ledger.fail(job.file_id, str(error), error.failure):
                    await self._pipeline.discard(job.file_id)
            case JobKind.PLACE:
                await self._placer.fail(job.collection, job.file_id, error)
            case JobKind.DELETE:
                pass
