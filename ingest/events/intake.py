"""Makes files of S3 objects as messages about them arrive, in any order and any number of times.

An event says where to look and how new it is; S3 says what is there; the object table says
whether it still matters. Objects are copied into the blob store: their files then live and die
by the ledger alone, however the bucket changes. Knows no queue and no SDK.
"""

import asyncio
import hashlib
import logging
import string
from collections.abc import Callable
from dataclasses import dataclass

from ingest.api import (
    FailureCode,
    FileRecord,
    FileStatus,
    FileTooLarge,
    IngestError,
    PermanentError,
    TransientError,
)
from ingest.blobs import BlobStore
from ingest.events.notices import Change, ObjectNotice, read_message
from ingest.events.objects import ObjectTable, Proposal, Settled
from ingest.events.source import ObjectChanged, ObjectSource, Seen
from ingest.events.verdict import Verdict, Wanted, decide, identity_of
from ingest.texts import upload_key

logger = logging.getLogger(__name__)

PURPOSE = "user_data"
LOOKS = 3
FAILED = "failed"
"""Stands for the identity of content that never became a file; no digest looks like it."""
ID_CHARS = string.digits + string.ascii_letters


class MessageFailed(IngestError):
    """Not everything the message asks for is done; `causes` says what is missing."""

    def __init__(self, causes: tuple[str, ...]) -> None:
        super().__init__("; ".join(causes))
        self.causes = causes


@dataclass(frozen=True, slots=True, kw_only=True)
class IntakeParts:
    source: ObjectSource
    objects: ObjectTable
    blobs: BlobStore


@dataclass(frozen=True, slots=True, kw_only=True)
class IntakeConfig:
    max_object_bytes: int
    pipeline_version: int

    def __post_init__(self) -> None:
        if self.max_object_bytes < 1:
            raise ValueError(f"max_object_bytes must be positive, not {self.max_object_bytes}")


class Intake:
    """Safe for concurrent use, in several processes too: the object table settles races."""

    def __init__(
        self, parts: IntakeParts, config: IntakeConfig, *, clock: Callable[[], float]
    ) -> None:
        self._parts = parts
        self._config = config
        self._clock = clock

    async def take(self, body: str, *, is_last: bool, within_s: float | None = None) -> None:
        """Do what one message asks for; doing it again changes nothing.

        Raises MessageFailed when any part of it could not be done in `within_s` seconds; the rest
        is done. When `is_last`, objects that could not be read get a failed file with the cause.
        """
        reading = read_message(body)
        if reading.ignored:
            logger.info("event ignored", extra={"causes": reading.ignored})
        causes = list(reading.refused)
        until = None if within_s is None else asyncio.get_running_loop().time() + within_s
        for notice in sorted(reading.notices, key=lambda notice: notice.sequencer):
            try:
                async with asyncio.timeout_at(until):
                    await self._apply(notice)
                continue
            except TransientError as error:
                cause = str(error)
            except TimeoutError:
                cause = f"it was not done in {within_s:g} seconds"
            causes.append(f"{notice.key}: {cause}")
            if is_last and notice.change is not Change.REMOVED:
                await self._give_up(notice, cause)
        if causes:
            raise MessageFailed(tuple(causes))

    async def _apply(self, notice: ObjectNotice) -> None:
        """Raises TransientError."""
        known = await self._parts.objects.known(notice.bucket, notice.key)
        told = _seen_by(notice)
        verdict = decide(known, self._wanted(notice, told))
        if verdict in (Verdict.STALE, Verdict.DUPLICATE):
            _log(notice, Settled(verdict, known.file_id))
            return
        is_same = notice.change is Change.CREATED and verdict is Verdict.SAME
        if is_same or notice.change is Change.REMOVED:
            settled = await self._settle(notice, told, None)
            if settled.verdict is not Verdict.REPLACE or told is None:
                _log(notice, settled)
                return
        try:
            _log(notice, await self._converge(notice))
        except PermanentError as error:
            _log(notice, await self._enter_failed(notice, str(error), error.failure))

    async def _converge(self, notice: ObjectNotice) -> Settled:
        """Make the key's file what S3 holds now, which may be newer than what the event tells.

        Raises PermanentError, TransientError.
        """
        self._check_size(notice.num_bytes)
        for _ in range(LOOKS):
            seen = await self._parts.source.look(notice.bucket, notice.key)
            if seen is None:
                return await self._settle(notice, None, None)
            self._check_size(seen.num_bytes)
            try:
                return await self._copy(notice, seen)
            except ObjectChanged:
                logger.info("object changed while it was read", extra=_fields(notice))
        raise TransientError(f"the object changed {LOOKS} times while it was read")

    async def _copy(self, notice: ObjectNotice, seen: Seen) -> Settled:
        wanted = self._wanted(notice, seen)
        known = await self._parts.objects.known(notice.bucket, notice.key)
        if decide(known, wanted) is not Verdict.REPLACE:
            settled = await self._settle(notice, seen, None)
            if settled.verdict is not Verdict.REPLACE:
                return settled
        assert wanted.identity is not None
        file_id = _file_id(wanted.identity, notice.sequencer)
        try:
            stored = await self._parts.blobs.put_stream(
                upload_key(file_id),
                self._parts.source.read(notice.bucket, notice.key, seen),
                limit_bytes=self._config.max_object_bytes,
            )
        except FileTooLarge as error:
            raise PermanentError(self._too_large(None)) from error
        record = FileRecord(
            id=file_id,
            filename=notice.key,
            purpose=PURPOSE,
            num_bytes=stored.num_bytes,
            digest=stored.digest,
            created_at=int(self._clock()),
            status=FileStatus.UPLOADED,
        )
        settled = await self._settle(notice, seen, record)
        if settled.file_id != file_id:
            await self._discard(file_id)
        return settled

    async def _discard(self, file_id: str) -> None:
        """The event is settled without this copy; no later delivery would remove it."""
        try:
            await self._parts.blobs.delete(upload_key(file_id))
        except TransientError as error:
            logger.error("blob left over", extra={"file_id": file_id, "cause": str(error)})

    async def _settle(
        self, notice: ObjectNotice, seen: Seen | None, record: FileRecord | None
    ) -> Settled:
        return await self._parts.objects.settle(
            Proposal(
                bucket=notice.bucket,
                key=notice.key,
                wanted=self._wanted(notice, seen, record),
                record=record,
                version_id=seen.version_id if seen else None,
                etag=seen.etag if seen else None,
            )
        )

    async def _give_up(self, notice: ObjectNotice, cause: str) -> None:
        """Leave a failed file behind. The same event, sent again by hand, will be tried again."""
        sentence = f"The object could not be read from S3, and no attempt is left: {cause}."
        try:
            settled = await self._enter_failed(notice, sentence, FailureCode.SERVER_ERROR)
        except TransientError as error:
            logger.error("event lost", extra=_fields(notice) | {"cause": str(error)})
        else:
            _log(notice, settled)

    async def _enter_failed(
        self, notice: ObjectNotice, cause: str, failure: FailureCode
    ) -> Settled:
        """Our own failures do not settle the event, the object's do."""
        is_ours = failure is FailureCode.SERVER_ERROR
        version = None if is_ours else self._config.pipeline_version
        named = f"{notice.bucket}\0{notice.key}\0{version}\0{cause}"
        record = FileRecord(
            id=_file_id(named, notice.sequencer),
            filename=notice.key,
            purpose=PURPOSE,
            num_bytes=notice.num_bytes or 0,
            digest="",
            created_at=int(self._clock()),
            status=FileStatus.ERROR,
            cause=cause,
            failure=failure,
        )
        return await self._parts.objects.settle(
            Proposal(
                bucket=notice.bucket,
                key=notice.key,
                wanted=Wanted(
                    sequencer=notice.sequencer, identity=FAILED, pipeline_version=version
                ),
                record=record,
            )
        )

    def _wanted(
        self, notice: ObjectNotice, seen: Seen | None, record: FileRecord | None = None
    ) -> Wanted:
        version = self._config.pipeline_version
        identity = None
        if seen is not None:
            identity = identity_of(
                notice.bucket,
                notice.key,
                version_id=seen.version_id,
                etag=seen.etag,
                pipeline_version=version,
            )
        return Wanted(
            sequencer=notice.sequencer,
            identity=identity,
            pipeline_version=version,
            digest=record.digest if record is not None and record.digest else None,
        )

    def _check_size(self, num_bytes: int | None) -> None:
        if num_bytes is not None and num_bytes > self._config.max_object_bytes:
            raise PermanentError(self._too_large(num_bytes))

    def _too_large(self, num_bytes: int | None) -> str:
        size = f"{num_bytes} bytes" if num_bytes is not None else "more bytes than S3 said"
        return f"The object has {size}; the limit is {self._config.max_object_bytes}."


def _seen_by(notice: ObjectNotice) -> Seen | None:
    """What the event says there is."""
    if notice.change is not Change.CREATED:
        return None
    return Seen(num_bytes=notice.num_bytes or 0, etag=notice.etag, version_id=notice.version_id)


def _file_id(identity: str, sequencer: str) -> str:
    """The same for every delivery of an event, so a copy that was cut short leaves no orphan."""
    number = int.from_bytes(hashlib.sha256(f"{identity}\0{sequencer}".encode()).digest())
    digits = []
    for _ in range(24):
        number, digit = divmod(number, len(ID_CHARS))
        digits.append(ID_CHARS[digit])
    return "file-" + "".join(digits)


def _log(notice: ObjectNotice, settled: Settled) -> None:
    fields = {"verdict": settled.verdict, "file_id": settled.file_id}
    logger.info("event settled", extra=_fields(notice) | fields)


def _fields(notice: ObjectNotice) -> dict[str, str | None]:
    """Keys are hashed: they often hold names of people."""
    digest = hashlib.sha256(notice.key.encode()).hexdigest()[:16]
    return {"change": notice.change, "bucket": notice.bucket, "key_digest": digest}
