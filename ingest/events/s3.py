"""An `ObjectSource` over S3 through boto3, whose calls run in threads. Knows no message."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Protocol, TypeVar, cast

from ingest.api import PermanentError, TransientError
from ingest.events.aws import AwsConfig, CallRefused, make_client, translated
from ingest.events.source import ObjectChanged, Seen

READ_BYTES = 1 << 20
GONE = frozenset({"404", "NoSuchKey", "NoSuchVersion"})
CHANGED = frozenset({"412", "PreconditionFailed", *GONE})
ARCHIVED = "InvalidObjectState"
DENIED = frozenset({"403", "AccessDenied"})

Answer = TypeVar("Answer")


class Body(Protocol):
    def read(self, amt: int) -> bytes: ...

    def close(self) -> None: ...


class S3Client(Protocol):
    """What is used of boto3's client."""

    def head_object(self, **request: str) -> Mapping[str, object]: ...

    def get_object(self, **request: str) -> Mapping[str, object]: ...


class S3Source:
    def __init__(self, client: S3Client) -> None:
        self._client = client

    @classmethod
    async def connect(cls, config: AwsConfig) -> "S3Source":
        return cls(cast(S3Client, await asyncio.to_thread(make_client, "s3", config)))

    async def look(self, bucket: str, key: str) -> Seen | None:
        try:
            answer = await _called(lambda: self._client.head_object(Bucket=bucket, Key=key))
        except CallRefused as error:
            if error.code in GONE:
                return None
            raise _error_of(error) from error
        etag, version_id = answer.get("ETag"), answer.get("VersionId")
        num_bytes = answer["ContentLength"]
        assert isinstance(num_bytes, int)
        return Seen(
            num_bytes=num_bytes,
            etag=str(etag).strip('"') if etag else None,
            version_id=str(version_id) if version_id else None,
        )

    async def read(self, bucket: str, key: str, seen: Seen) -> AsyncIterator[bytes]:
        request = {"Bucket": bucket, "Key": key}
        if seen.etag is not None:
            request["IfMatch"] = f'"{seen.etag}"'
        if seen.version_id is not None:
            request["VersionId"] = seen.version_id
        try:
            answer = await _called(lambda: self._client.get_object(**request))
        except CallRefused as error:
            if error.code in CHANGED:
                raise ObjectChanged(key) from error
            raise _error_of(error) from error
        body = cast(Body, answer["Body"])
        try:
            while piece := await _called(lambda: body.read(READ_BYTES)):
                yield piece
        finally:
            body.close()


async def _called(call: Callable[[], Answer]) -> Answer:
    with translated():
        return await asyncio.to_thread(call)


def _error_of(error: CallRefused) -> PermanentError | TransientError:
    if error.code == ARCHIVED:
        return PermanentError("The object is archived; restore it from Glacier and add it again.")
    if error.code in DENIED:
        needs = "s3:GetObject, s3:GetObjectVersion, s3:ListBucket and the key's kms:Decrypt"
        return TransientError(f"S3 denies access; the reader needs {needs}: {error}")
    return TransientError(f"S3 refuses: {error}")
