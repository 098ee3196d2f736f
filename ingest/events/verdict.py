"""Whether a change of an object still matters. Pure: knows neither S3 nor the database."""

import hashlib
from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    STALE = "stale"
    """A newer change was handled before."""

    DUPLICATE = "duplicate"
    """This very change was."""

    SAME = "same"
    """It is newer and asks for what is there: only its sequencer is kept."""

    REPLACE = "replace"


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is recorded of a key. `sequencer` is None when nothing is.

    `pipeline_version` is None when the last change was given up. `is_alive` says that the file
    exists, is not deleted and has not failed.
    """

    sequencer: str | None = None
    identity: str | None = None
    pipeline_version: int | None = None
    file_id: str | None = None
    digest: str | None = None
    is_alive: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a change asks for: the content named `identity`, or None: no file at all.

    `digest` is None while the bytes are unread; `pipeline_version` is None to give up.
    """

    sequencer: str
    identity: str | None
    pipeline_version: int | None
    digest: str | None = None


def decide(known: Known, wanted: Wanted) -> Verdict:
    if known.sequencer is not None and wanted.sequencer < known.sequencer:
        return Verdict.STALE
    if wanted.sequencer == known.sequencer and _is_settled(known, wanted):
        return Verdict.DUPLICATE
    if wanted.identity is None:
        return Verdict.SAME if known.file_id is None else Verdict.REPLACE
    return Verdict.SAME if known.is_alive and _is_content(known, wanted) else Verdict.REPLACE


def _is_settled(known: Known, wanted: Wanted) -> bool:
    return wanted.pipeline_version in (None, known.pipeline_version)


def _is_content(known: Known, wanted: Wanted) -> bool:
    if known.identity == wanted.identity:
        return True
    same_bytes = wanted.digest is not None and known.digest == wanted.digest
    return same_bytes and known.pipeline_version == wanted.pipeline_version


def identity_of(
    bucket: str, key: str, *, version_id: str | None, etag: str | None, pipeline_version: int
) -> str:
    """The idempotency key: one name for these bytes read by this pipeline.

    The version "null" is what a bucket without versioning overwrites, so there the ETag counts.
    """
    content = f"v:{version_id}" if version_id not in (None, "null") else f"e:{etag}"
    named = "\0".join((bucket, key, content, str(pipeline_version)))
    return hashlib.sha256(named.encode()).hexdigest()
