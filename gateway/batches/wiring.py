"""Runs batches beside a served app."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.types import ASGIApp

from gateway.batches.calls import InProcess
from gateway.batches.runner import BatchRunner, RunnerConfig
from gateway.parts import Parts
from gateway.together import beside


@asynccontextmanager
async def running_batches(
    parts: Parts, app: ASGIApp, config: RunnerConfig | None = None
) -> AsyncIterator[None]:
    """Lines are requests to `app`; what is unfinished at the end goes on with the next start."""
    if parts.batches is None:
        yield
        return
    runner = BatchRunner(
        parts.batches,
        parts.library,
        InProcess(app, parts.issued, clock=parts.clock),
        config,
        clock=parts.clock,
        new_id=parts.new_id,
    )
    async with beside(runner.run()):
        yield
