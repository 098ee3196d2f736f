"""The files of a batch: its input on this machine's disk, its results as new files.

Knows how a result is spelled; not how it comes about.
"""

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import BinaryIO

import msgspec

from gateway.batches.api import Batch, BatchLine, BatchStore, LineOutcome, LineState
from gateway.batches.calls import CallAnswer
from ingest.api import Library

RESULTS_PURPOSE = "batch_output"
IN_MEMORY_BYTES = 4 * 2**20
OUTCOMES_PER_READ = 64


class ResponsePart(msgspec.Struct, kw_only=True):
    status_code: int
    request_id: str
    body: msgspec.Raw


class ErrorPart(msgspec.Struct, kw_only=True):
    code: str
    message: str


class ResultLine(msgspec.Struct, kw_only=True):
    id: str
    custom_id: str
    response: ResponsePart | None
    error: ErrorPart | None


@asynccontextmanager
async def spooled_input(library: Library, file_id: str) -> AsyncIterator[BinaryIO]:
    """A copy that can be read from anywhere. Raises FileMissing."""
    with tempfile.SpooledTemporaryFile(max_size=IN_MEMORY_BYTES) as file:
        async for piece in library.content(file_id):
            file.write(piece)
        yield file  # type: ignore[misc]


def answered(batch: Batch, line: BatchLine, answer: CallAnswer) -> LineOutcome:
    """Of an error status, too: OpenAI's error object is the body then."""
    result = ResultLine(
        id=_request_id(batch, line),
        custom_id=line.custom_id,
        response=ResponsePart(
            status_code=answer.status,
            request_id=answer.headers.get("x-request-id", ""),
            body=msgspec.Raw(answer.body),
        ),
        error=None,
    )
    state = LineState.SUCCEEDED if answer.status == 200 else LineState.FAILED
    return LineOutcome(state, msgspec.json.encode(result))


def unanswered(batch: Batch, line: BatchLine, code: str, message: str) -> LineOutcome:
    result = ResultLine(
        id=_request_id(batch, line),
        custom_id=line.custom_id,
        response=None,
        error=ErrorPart(code=code, message=message),
    )
    return LineOutcome(LineState.FAILED, msgspec.json.encode(result))


async def write_results(
    store: BatchStore, library: Library, batch: Batch, state: LineState
) -> str | None:
    """The id of a new file with all outcomes of this state; None when there are none."""
    if not await store.outcomes(batch.id, state, above=-1, limit=1):
        return None
    kind = "output" if state is LineState.SUCCEEDED else "error"
    record = await library.add(
        filename=f"{batch.id}_{kind}.jsonl",
        purpose=RESULTS_PURPOSE,
        body=_texts(store, batch.id, state),
        expires_after_s=batch.output_life_s,
    )
    return record.id


async def _texts(store: BatchStore, batch_id: str, state: LineState) -> AsyncIterator[bytes]:
    above = -1
    while found := await store.outcomes(batch_id, state, above=above, limit=OUTCOMES_PER_READ):
        yield b"".join(text + b"\n" for _, text in found)
        above = found[-1][0]


def _request_id(batch: Batch, line: BatchLine) -> str:
    return f"batch_req_{batch.id.removeprefix('batch_')}_{line.number}"
