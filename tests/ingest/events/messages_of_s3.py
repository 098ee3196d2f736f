"""Messages as S3, SNS and EventBridge send them."""

import json
from dataclasses import dataclass
from urllib.parse import quote_plus

BUCKET = "case-files"
Json = dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One change as an event tells it."""

    key: str
    name: str = "ObjectCreated:Put"
    sequencer: str | None = "0055AED6DCD90281E5"
    size: int | None = 5
    etag: str | None = "d41d8cd98f00b204e9800998ecf8427e"
    version_id: str | None = None
    bucket: str = BUCKET


def record(told: Told) -> Json:
    seen = {
        "key": quote_plus(told.key, safe="/"),
        "size": told.size,
        "eTag": told.etag,
        "versionId": told.version_id,
        "sequencer": told.sequencer,
    }
    return {
        "eventVersion": "2.1",
        "eventSource": "aws:s3",
        "awsRegion": "eu-central-1",
        "eventTime": "2026-03-01T12:00:00.000Z",
        "eventName": told.name,
        "s3": {
            "s3SchemaVersion": "1.0",
            "configurationId": "everything",
            "bucket": {"name": told.bucket, "arn": f"arn:aws:s3:::{told.bucket}"},
            "object": {name: value for name, value in seen.items() if value is not None},
        },
    }


def direct(*told: Told) -> str:
    return json.dumps({"Records": [record(each) for each in told]})


def in_sns(body: str) -> str:
    return json.dumps(
        {
            "Type": "Notification",
            "MessageId": "22b80b92-fdea-4c2c-8f9d-bdfb0c7bf324",
            "TopicArn": "arn:aws:sns:eu-central-1:123456789012:uploads",
            "Subject": "Amazon S3 Notification",
            "Message": body,
            "Timestamp": "2026-03-01T12:00:00.000Z",
            "SignatureVersion": "1",
        }
    )


def in_eventbridge(told: Told, *, deletion_type: str | None = None) -> str:
    seen = {
        "key": told.key,
        "size": told.size,
        "etag": told.etag,
        "version-id": told.version_id,
        "sequencer": told.sequencer,
    }
    detail: Json = {
        "version": "0",
        "bucket": {"name": told.bucket},
        "object": {name: value for name, value in seen.items() if value is not None},
        "reason": "PutObject",
    }
    if deletion_type is not None:
        detail["deletion-type"] = deletion_type
    return json.dumps(
        {
            "version": "0",
            "id": "17793124-05d4-b198-2fde-7ededc63b103",
            "detail-type": "Object Deleted" if "Removed" in told.name else "Object Created",
            "source": "aws.s3",
            "account": "123456789012",
            "time": "2026-03-01T12:00:00Z",
            "region": "eu-central-1",
            "resources": [f"arn:aws:s3:::{told.bucket}"],
            "detail": detail,
        }
    )
