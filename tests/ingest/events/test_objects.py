"""The object table enters a change whole or not at all."""

import pytest

from ingest.api import FileRecord, FileStatus, TransientError
from ingest.events.objects import ObjectTable, Proposal
from ingest.events.verdict import Verdict, Wanted
from tests.ingest.house import House

RECORD = FileRecord(
    id="file-1",
    filename="k.txt",
    purpose="user_data",
    num_bytes=1,
    digest="d",
    created_at=1,
    status=FileStatus.UPLOADED,
)


def proposal(sequencer: str, record: FileRecord | None) -> Proposal:
    wanted = Wanted(sequencer=sequencer, identity="content", pipeline_version=1)
    return Proposal(bucket="b", key="k.txt", wanted=wanted, record=record)


async def test_the_same_content_without_its_bytes_never_replaces_a_file_that_went(
    house: House,
) -> None:
    """It looked the same when it was asked for; the file was deleted before it was entered."""
    table = ObjectTable(house.database, clock=lambda: 1.0)
    assert (await table.settle(proposal("A1", RECORD))).verdict is Verdict.REPLACE
    assert (await table.settle(proposal("A2", None))).verdict is Verdict.SAME
    await house.library.delete("file-1")
    before = await table.known("b", "k.txt")
    assert (await table.settle(proposal("A3", None))).verdict is Verdict.REPLACE
    assert await table.known("b", "k.txt") == before


async def test_a_record_that_cannot_be_entered_leaves_the_row_as_it_was(house: House) -> None:
    table = ObjectTable(house.database, clock=lambda: 1.0)
    await table.settle(proposal("A1", RECORD))
    other = Proposal(
        bucket="b",
        key="other.txt",
        wanted=Wanted(sequencer="A1", identity="other", pipeline_version=1),
        record=RECORD,
    )
    with pytest.raises(TransientError):
        await table.settle(other)
    assert (await table.known("b", "other.txt")).sequencer is None
