"""Objects become files and cease to be, whatever the order and number of the events about them."""

import asyncio
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from ingest.api import FailureCode, FileStatus
from ingest.events.intake import Intake, MessageFailed
from tests.ingest.events.gate import LIMIT_BYTES, Bucket, Gate, blobs_under, intake_of
from tests.ingest.events.messages_of_s3 import Told, direct

TWO_GB = 2 << 30


async def test_an_object_is_found_until_it_is_removed(
    gate: Gate, bucket: Bucket, tmp_path: Path
) -> None:
    await gate.take(bucket.put("leases/a+b.txt", b"The rent is nine hundred guilders."))
    assert await gate.processed() == {"leases/a+b.txt": "The rent is nine hundred guilders."}
    assert await gate.found("guilders") == ["leases/a+b.txt"]
    [record] = await gate.files()
    await gate.take(bucket.remove("leases/a+b.txt"))
    await gate.house.settle()
    assert await gate.files() == []
    assert await gate.house.ledger.is_purged(record.id)
    assert blobs_under(tmp_path) == set()


@pytest.mark.parametrize("seed", range(2))
async def test_every_event_three_times_in_any_order_ends_as_the_bucket_is(
    gate: Gate, bucket: Bucket, tmp_path: Path, seed: int
) -> None:
    rng = Random(seed)
    for number in range(12):
        key = f"case {rng.randrange(3)}/ä+{number % 2}.txt"
        if rng.random() < 0.3:
            bucket.remove(key)
        else:
            bucket.put(key, f"Statement {rng.randrange(4)} of the witness.".encode())
    deliveries = bucket.told * 3
    rng.shuffle(deliveries)
    for told in deliveries:
        await gate.take(told)
        if rng.random() < 0.1:
            await gate.house.settle()
    expected = {key: raw.decode() for key, raw in gate.source.objects.items()}
    assert await gate.processed() == expected
    assert blobs_under(tmp_path) == {record.id for record in await gate.files()}


@pytest.mark.parametrize("seed", range(4))
async def test_overwrites_racing_deletes_end_right_while_the_bucket_still_changes(
    gate: Gate, bucket: Bucket, seed: int
) -> None:
    """S3 shows the state of the event's moment or of any later one."""
    rng = Random(seed)
    moments: list[dict[str, bytes]] = []
    for number in range(5):
        if rng.random() < 0.4:
            bucket.remove("k.txt")
        else:
            bucket.put("k.txt", f"Content {number}.".encode())
        moments.append(dict(gate.source.objects))
    deliveries = list(range(5)) * 3
    rng.shuffle(deliveries)
    for number in deliveries:
        gate.source.objects = moments[rng.randrange(number, 5)]
        await gate.take(bucket.told[number])
    expected = {key: raw.decode() for key, raw in moments[-1].items()}
    assert await gate.processed() == expected


async def test_concurrent_deliveries_make_one_file(
    gate: Gate, bucket: Bucket, tmp_path: Path
) -> None:
    first, second = bucket.put("k.txt", b"first"), bucket.put("k.txt", b"second")
    async with asyncio.TaskGroup() as group:
        for told in [first, second, first, second, first, second]:
            group.create_task(gate.take(told))
    assert await gate.processed() == {"k.txt": "second"}
    assert len(blobs_under(tmp_path)) == 1


async def test_an_object_overwritten_while_it_is_read_is_read_again(
    gate: Gate, bucket: Bucket
) -> None:
    told = bucket.put("k.txt", b"first")
    gate.source.while_reading = lambda: gate.source.objects.update({"k.txt": b"second"})
    await gate.take(told)
    assert await gate.processed() == {"k.txt": "second"}
    await gate.take(bucket.put("k.txt", b"second"))
    assert gate.source.num_reads == 2, "the later event brought nothing new"


async def test_two_gigabytes_are_refused_without_a_call(gate: Gate, bucket: Bucket) -> None:
    told = replace(bucket.put("film.txt", b"x"), size=TWO_GB)
    for _ in range(3):
        await gate.take(told)
    [record] = await gate.files()
    assert (record.status, record.failure) == (FileStatus.ERROR, FailureCode.INVALID_FILE)
    assert record.num_bytes == TWO_GB
    assert record.cause == f"The object has {TWO_GB} bytes; the limit is {LIMIT_BYTES}."
    assert gate.source.num_looks == 0


@pytest.mark.parametrize("claimed_bytes", [TWO_GB, None, 1])
async def test_an_event_that_lies_about_the_size_is_caught(
    gate: Gate, bucket: Bucket, tmp_path: Path, claimed_bytes: int | None
) -> None:
    """By HEAD, and should HEAD lie as well, by counting."""
    told = replace(bucket.put("k.txt", b"x" * (LIMIT_BYTES + 1)), size=1)
    gate.source.claimed_bytes = claimed_bytes
    await gate.take(told)
    [record] = await gate.files()
    assert record.status is FileStatus.ERROR
    assert record.cause is not None
    assert f"the limit is {LIMIT_BYTES}" in record.cause
    assert gate.source.num_reads == (1 if claimed_bytes == 1 else 0)
    assert blobs_under(tmp_path) == set()


async def test_a_refused_object_makes_way_for_one_that_fits(gate: Gate, bucket: Bucket) -> None:
    await gate.take(replace(bucket.put("k.txt", b"x"), size=TWO_GB))
    await gate.take(bucket.put("k.txt", b"it fits"))
    assert await gate.processed() == {"k.txt": "it fits"}


async def test_the_last_attempt_leaves_a_failed_file_that_the_same_event_can_mend(
    gate: Gate, bucket: Bucket
) -> None:
    told = bucket.put("k.txt", b"content")
    gate.source.failing = True
    with pytest.raises(MessageFailed, match=r"k\.txt: S3 is out"):
        await gate.take(told)
    assert await gate.files() == []
    for _ in range(2):
        with pytest.raises(MessageFailed):
            await gate.take(told, is_last=True)
    [record] = await gate.files()
    assert (record.status, record.failure) == (FileStatus.ERROR, FailureCode.SERVER_ERROR)
    assert record.cause is not None
    assert record.cause.endswith("no attempt is left: S3 is out.")
    gate.source.failing = False
    await gate.take(told)
    assert await gate.processed() == {"k.txt": "content"}


async def test_what_fails_in_a_message_does_not_keep_the_rest(gate: Gate, bucket: Bucket) -> None:
    good = bucket.put("good.txt", b"good")
    bad = Told(key="bad.txt", sequencer=None)
    with pytest.raises(MessageFailed, match="no sequencer"):
        await gate.take(bad, good)
    assert await gate.processed() == {"good.txt": "good"}


async def test_a_message_that_takes_too_long_fails_by_name(gate: Gate, bucket: Bucket) -> None:
    told = bucket.put("k.txt", b"content")
    with pytest.raises(MessageFailed, match=r"k\.txt: it was not done in 1e-09 seconds"):
        await gate.intake.take(direct(told), is_last=False, within_s=1e-9)
    await gate.take(told)
    assert await gate.processed() == {"k.txt": "content"}


async def test_a_removed_version_uncovers_the_one_before(gate: Gate, bucket: Bucket) -> None:
    first, second = bucket.put("k.txt", b"first"), bucket.put("k.txt", b"second")
    await gate.take(replace(first, version_id="v1"), replace(second, version_id="v2"))
    assert await gate.processed() == {"k.txt": "second"}
    removed = replace(bucket.remove("k.txt"), version_id="v2")
    gate.source.objects = {"k.txt": b"first"}
    await gate.take(removed)
    assert await gate.processed() == {"k.txt": "first"}


async def test_removing_an_old_version_leaves_the_current_file_alone(
    gate: Gate, bucket: Bucket
) -> None:
    gate.source.version_ids = {"k.txt": "v2"}
    await gate.take(replace(bucket.put("k.txt", b"second"), version_id="v2"))
    [record] = await gate.files()
    removed = replace(bucket.remove("k.txt"), version_id="v1")
    gate.source.objects = {"k.txt": b"second"}
    await gate.take(removed)
    assert [each.id for each in await gate.files()] == [record.id]


async def test_a_file_deleted_by_its_reader_is_not_revived_by_a_late_event(
    gate: Gate, bucket: Bucket
) -> None:
    told = bucket.put("k.txt", b"secret")
    await gate.take(told)
    [record] = await gate.files()
    await gate.house.library.delete(record.id)
    await gate.take(told)
    assert await gate.files() == []


async def test_an_event_sent_again_after_an_upgrade_is_read_anew(
    gate: Gate, bucket: Bucket
) -> None:
    told = bucket.put("k.txt", b"content")
    await gate.take(told)
    upgraded: Intake = await intake_of(gate.house, gate.source, pipeline_version=2)
    for _ in range(2):
        await upgraded.take(direct(told), is_last=False)
    assert gate.source.num_reads == 2
    assert await gate.processed() == {"k.txt": "content"}
