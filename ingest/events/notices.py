"""What a message about S3 objects says. Pure: knows the shapes of messages, not their effects.

S3 sends records with URL-encoded keys, by itself or inside an SNS envelope; EventBridge sends
one change with the key as it is.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import unquote_plus

import msgspec

MAX_KEY_BYTES = 1024
MAX_ENVELOPES = 2
SEQUENCER = re.compile(r"[0-9A-F]{1,64}")
IRRELEVANT = re.compile(
    r"TestEvent|ReducedRedundancyLostObject|IntelligentTiering|LifecycleTransition"
    r"|Replication:.+|ObjectRestore:.+|ObjectTagging:.+|ObjectAcl:.+|ObjectAnnotation:.+"
)
CREATED = re.compile(r"ObjectCreated:.+")
REMOVED = re.compile(r"(ObjectRemoved|LifecycleExpiration):(Delete|DeleteMarkerCreated)")
BRIDGE_IRRELEVANT = re.compile(
    r"Object (Restore .+|Storage Class Changed|Access Tier Changed|ACL Updated|Tags .+)"
)


class Change(StrEnum):
    CREATED = "created"
    REMOVED = "removed"
    """The key has no object any more."""

    VERSION_REMOVED = "version_removed"
    """One version went; whether another is current now must be asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectNotice:
    """One change of one key.

    Of two notices of a key the one with the greater `sequencer` is newer; it is stored without
    trailing zeros, so plain string order is the order of values padded with zeros.
    """

    change: Change
    bucket: str
    key: str
    sequencer: str
    region: str | None = None
    num_bytes: int | None = None
    etag: str | None = None
    version_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """All that a message said: what to act on, and sentences for what not, and why."""

    notices: tuple[ObjectNotice, ...] = ()
    ignored: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


def read_message(body: str) -> Reading:
    """Read the body of a queue's message. Never raises: what cannot be read is `refused`."""
    notices: list[ObjectNotice] = []
    ignored: list[str] = []
    refused: list[str] = []
    for each in _changes(body, MAX_ENVELOPES):
        match each:
            case ObjectNotice():
                notices.append(each)
            case Ignored():
                ignored.append(each.reason)
            case Refused():
                refused.append(each.reason)
    return Reading(notices=tuple(notices), ignored=tuple(ignored), refused=tuple(refused))


def canonical_sequencer(raw: str | None) -> str:
    """Raises ValueError."""
    if raw is None:
        raise ValueError("it has no sequencer, so its order cannot be known")
    digits = raw.upper()
    if not SEQUENCER.fullmatch(digits):
        raise ValueError(f"its sequencer is not 1 to 64 hexadecimal digits: {raw[:80]!r}")
    return digits.rstrip("0")


@dataclass(frozen=True, slots=True)
class Ignored:
    reason: str


@dataclass(frozen=True, slots=True)
class Refused:
    reason: str


class Bucket(msgspec.Struct, frozen=True):
    name: str


class S3Object(msgspec.Struct, frozen=True, rename="camel"):
    key: str
    size: int | None = None
    e_tag: str | None = None
    version_id: str | None = None
    sequencer: str | None = None


class S3Part(msgspec.Struct, frozen=True):
    bucket: Bucket
    object: S3Object


class S3Record(msgspec.Struct, frozen=True, rename="camel"):
    event_name: str
    s3: S3Part
    aws_region: str | None = None


class BridgeObject(msgspec.Struct, frozen=True, rename="kebab"):
    key: str
    size: int | None = None
    etag: str | None = None
    version_id: str | None = None
    sequencer: str | None = None


class BridgeDetail(msgspec.Struct, frozen=True, rename="kebab"):
    bucket: Bucket
    object: BridgeObject
    deletion_type: str | None = None


class BridgeEvent(msgspec.Struct, frozen=True, rename="kebab"):
    detail_type: str
    detail: BridgeDetail
    region: str | None = None


Read = ObjectNotice | Ignored | Refused


def _changes(body: str, num_envelopes: int) -> Iterator[Read]:
    try:
        message = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        yield Refused(f"the message is not JSON: {error}")
        return
    match message:
        case {"Records": [*records]}:
            yield from map(_s3_change, records)
        case {"Event": "s3:TestEvent"}:
            yield Ignored("s3:TestEvent")
        case {"source": "aws.s3", "detail-type": str()}:
            yield _bridge_change(message)
        case {"Type": "Notification", "Message": str(inner)} if num_envelopes > 0:
            yield from _changes(inner, num_envelopes - 1)
        case {**fields}:
            yield Refused(f"the message is of no known kind; its fields: {_names(fields)}")
        case _:
            yield Refused(f"the message is a JSON {type(message).__name__}, not an object")


def _s3_change(raw: object) -> Read:
    match raw:
        case {"eventSource": str(source), **rest} if "s3" not in rest:
            return Refused(f"a record is about {source[:80]}, not an S3 object")
        case {"eventName": str(name)} if IRRELEVANT.fullmatch(name.removeprefix("s3:")):
            return Ignored(name)
    try:
        record = msgspec.convert(raw, S3Record)
        change = _s3_kind(record)
        seen = record.s3.object
        return _notice(
            change,
            ObjectNotice(
                change=change,
                bucket=record.s3.bucket.name,
                key=unquote_plus(seen.key, errors="strict"),
                sequencer=canonical_sequencer(seen.sequencer),
                region=record.aws_region,
                num_bytes=seen.size,
                etag=_bare(seen.e_tag),
                version_id=seen.version_id or None,
            ),
        )
    except (msgspec.ValidationError, ValueError) as error:
        return Refused(f"a record cannot be read: {error}")


def _bridge_change(raw: object) -> Read:
    match raw:
        case {"detail-type": str(name)} if BRIDGE_IRRELEVANT.fullmatch(name):
            return Ignored(name)
    try:
        event = msgspec.convert(raw, BridgeEvent)
        change = _bridge_kind(event)
        seen = event.detail.object
        return _notice(
            change,
            ObjectNotice(
                change=change,
                bucket=event.detail.bucket.name,
                key=seen.key,
                sequencer=canonical_sequencer(seen.sequencer),
                region=event.region,
                num_bytes=seen.size,
                etag=_bare(seen.etag),
                version_id=seen.version_id or None,
            ),
        )
    except (msgspec.ValidationError, ValueError) as error:
        return Refused(f"the event cannot be read: {error}")


def _notice(change: Change, notice: ObjectNotice) -> Read:
    """Raises ValueError when the key, the bucket or the size cannot be S3's."""
    num_bytes = len(notice.key.encode())  # a lone surrogate is a ValueError
    if not notice.bucket or not notice.key:
        raise ValueError("its bucket or key is empty")
    if num_bytes > MAX_KEY_BYTES:
        raise ValueError(f"its key has {num_bytes} bytes; S3's limit is {MAX_KEY_BYTES}")
    if "\0" in notice.key + notice.bucket:
        raise ValueError("its bucket or key holds a NUL character")
    notice.bucket.encode()
    if notice.num_bytes is not None and notice.num_bytes < 0:
        raise ValueError(f"its size is negative: {notice.num_bytes}")
    if change is Change.CREATED and notice.key.endswith("/") and notice.num_bytes == 0:
        return Ignored(f"a folder marker: {notice.key}")
    return notice


def _s3_kind(record: S3Record) -> Change:
    name = record.event_name.removeprefix("s3:")
    if CREATED.fullmatch(name):
        return Change.CREATED
    removed = REMOVED.fullmatch(name)
    if removed is None:
        raise ValueError(f"its eventName is not known: {name[:80]!r}")
    is_version = removed[2] == "Delete" and bool(record.s3.object.version_id)
    return Change.VERSION_REMOVED if is_version else Change.REMOVED


def _bridge_kind(event: BridgeEvent) -> Change:
    match event.detail_type:
        case "Object Created":
            return Change.CREATED
        case "Object Deleted":
            is_marker = event.detail.deletion_type == "Delete Marker Created"
            is_version = not is_marker and bool(event.detail.object.version_id)
            return Change.VERSION_REMOVED if is_version else Change.REMOVED
    raise ValueError(f"its detail-type is not known: {event.detail_type[:80]!r}")


def _bare(etag: str | None) -> str | None:
    return etag.strip('"') or None if etag is not None else None


def _names(fields: dict[object, object]) -> str:
    return ", ".join(sorted(str(name)[:40] for name in fields)[:10]) or "none"
