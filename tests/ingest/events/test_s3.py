"""Objects in S3, read through boto3: names of any characters, and exactly what was seen."""

import pytest

from ingest.api import PermanentError, TransientError
from ingest.events.aws import AwsConfig
from ingest.events.s3 import S3Source
from ingest.events.source import ObjectChanged, Seen
from tests.ingest.events.cloud import Cloud

pytestmark = pytest.mark.services

ODD_KEYS = [
    "a b+c%2F.txt",
    "ünï/😀.txt",
    "a//b",
    "/lead",
    "x/../y",
    "./z",
    "tab\there",
    "a?b#c&d=e;f",
    "100% sure.txt",
    "C:\\temp\\file.txt",
    "quo\"te's",
]


async def read(source: S3Source, bucket: str, key: str, seen: Seen) -> bytes:
    return b"".join([piece async for piece in source.read(bucket, key, seen)])


async def test_odd_keys_are_read_as_they_are(cloud: Cloud) -> None:
    bucket, source = cloud.new_bucket(), await S3Source.connect(cloud.aws)
    for key in ODD_KEYS:
        cloud.s3.put_object(Bucket=bucket, Key=key, Body=key.encode())
    for key in ODD_KEYS:
        seen = await source.look(bucket, key)
        assert seen is not None
        assert seen.num_bytes == len(key.encode())
        assert await read(source, bucket, key, seen) == key.encode()


async def test_what_is_gone_or_changed_is_said(cloud: Cloud) -> None:
    bucket, source = cloud.new_bucket(), await S3Source.connect(cloud.aws)
    assert await source.look(bucket, "k") is None
    cloud.s3.put_object(Bucket=bucket, Key="k", Body=b"first")
    seen = await source.look(bucket, "k")
    assert seen is not None
    cloud.s3.put_object(Bucket=bucket, Key="k", Body=b"second")
    with pytest.raises(ObjectChanged):
        await read(source, bucket, "k", seen)
    cloud.s3.delete_object(Bucket=bucket, Key="k")
    with pytest.raises(ObjectChanged):
        await read(source, bucket, "k", seen)


async def test_a_version_that_was_seen_is_the_one_read(cloud: Cloud) -> None:
    bucket, source = cloud.new_bucket(), await S3Source.connect(cloud.aws)
    cloud.s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    cloud.s3.put_object(Bucket=bucket, Key="k", Body=b"first")
    seen = await source.look(bucket, "k")
    assert seen is not None
    assert seen.version_id is not None
    cloud.s3.put_object(Bucket=bucket, Key="k", Body=b"second")
    assert await read(source, bucket, "k", seen) == b"first"


async def test_an_archived_object_is_refused_for_good(cloud: Cloud) -> None:
    bucket, source = cloud.new_bucket(), await S3Source.connect(cloud.aws)
    cloud.s3.put_object(Bucket=bucket, Key="k", Body=b"cold", StorageClass="GLACIER")
    seen = await source.look(bucket, "k")
    assert seen is not None
    with pytest.raises(PermanentError, match="archived"):
        await read(source, bucket, "k", seen)


async def test_a_service_that_is_out_may_come_back(cloud: Cloud) -> None:
    bucket, source = cloud.new_bucket(), await S3Source.connect(cloud.aws)
    cloud.s3.put_object(Bucket=bucket, Key="k", Body=b"x" * 100_000)
    seen = await source.look(bucket, "k")
    assert seen is not None
    quick = AwsConfig(endpoint_url=cloud.url, max_attempts=1)
    impatient = await S3Source.connect(quick)
    with cloud.faults.striking(1.0, bucket):
        with pytest.raises(TransientError):
            await impatient.look(bucket, "k")
        for _ in range(4):  # cut streams among them
            with pytest.raises(TransientError):
                await read(impatient, bucket, "k", seen)
    nowhere = AwsConfig(endpoint_url="http://127.0.0.1:9", max_attempts=1, connect_timeout_s=0.2)
    with pytest.raises(TransientError, match="does not answer"):
        await (await S3Source.connect(nowhere)).look(bucket, "k")
