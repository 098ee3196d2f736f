"""A `Library` in memory for other packages' tests: ingests at once, searches by shared words."""

import hashlib
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from ingest.api import (
    LOCAL,
    UNREAD_PURPOSES,
    FailureCode,
    FileMissing,
    FilePage,
    FileRecord,
    FileStatus,
    FileTooLarge,
    InlineSearch,
    Stage,
    StoredText,
    refuse_unprocessed,
)
from ingest.fake_stores import FakeVectorStores
from ingest.fake_uploads import FakeUploads
from ingest.ledger import new_file_id
from ingest.uploads_api import UploadRecord
from retrieval.api import Passage, QueryRejected, SearchRequest, SearchResult

PARAGRAPH = re.compile(r"\S(?:.|\n(?!\s*\n))*")
WORD = re.compile(r"\w+")


@dataclass(slots=True)
class FakeFile:
    record: FileRecord
    raw: bytes
    text: str | None = None


class FakeLibrary:
    """`add` answers UPLOADED, and the file is PROCESSED (UTF-8) or ERROR when asked for next.

    Files added between `hold()` and `resume()` stay UPLOADED until then.
    """

    def __init__(
        self, *, max_file_bytes: int = 1 << 20, clock: Callable[[], float] = time.time
    ) -> None:
        self._max_file_bytes = max_file_bytes
        self._clock = clock
        self._tenants: dict[str, FakeLibrary] = {LOCAL: self}
        self._files: dict[str, FakeFile] = {}
        self._waiting: list[FakeFile] | None = None
        self._stores = FakeVectorStores(self._record, self._text, _search, clock=clock)
        self._uploads = FakeUploads(self._enter, self._record, clock=clock)

    def for_tenant(self, tenant: str) -> "FakeLibrary":
        if tenant not in self._tenants:
            other = FakeLibrary(max_file_bytes=self._max_file_bytes, clock=self._clock)
            other._tenants = self._tenants
            self._tenants[tenant] = other
        return self._tenants[tenant]

    @property
    def stores(self) -> FakeVectorStores:
        return self._stores

    @property
    def uploads(self) -> FakeUploads:
        return self._uploads

    def hold(self) -> None:
        self._waiting = self._waiting or []

    def resume(self) -> None:
        for file in self._waiting or []:
            _ingest(file)
        self._waiting = None

    async def add(
        self,
        *,
        filename: str,
        purpose: str,
        body: AsyncIterator[bytes],
        expires_after_s: int | None = None,
    ) -> FileRecord:
        raw = bytearray()
        async for piece in body:
            raw += piece
            if len(raw) > self._max_file_bytes:
                raise FileTooLarge(limit_bytes=self._max_file_bytes)
        now = int(self._clock())
        record = FileRecord(
            id=new_file_id(),
            filename=filename,
            purpose=purpose,
            num_bytes=len(raw),
            digest=hashlib.sha256(raw).hexdigest(),
            created_at=now,
            expires_at=None if expires_after_s is None else now + expires_after_s,
            status=FileStatus.UPLOADED,
        )
        file = self._files[record.id] = FakeFile(record, bytes(raw))
        if self._waiting is None:
            _ingest(file)
        else:
            self._waiting.append(file)
        return record

    async def get(self, file_id: str) -> FileRecord:
        return self._find(file_id).record

    async def list(
        self, *, after: str | None, limit: int, ascending: bool, purpose: str | None
    ) -> FilePage:
        records = [file.record for file in self._files.values() if self._lives(file)]
        if not ascending:
            records.reverse()
        if after is not None:
            cursor = self._find(after).record
            records = records[records.index(cursor) + 1 :]
        wanted = [each for each in records if purpose in (None, each.purpose)]
        return FilePage(files=wanted[:limit], has_more=len(wanted) > limit)

    async def content(self, file_id: str) -> AsyncIterator[bytes]:
        yield self._find(file_id).raw

    async def delete(self, file_id: str) -> None:
        self._find(file_id)
        del self._files[file_id]

    async def text(self, file_id: str) -> StoredText:
        file = self._find(file_id)
        refuse_unprocessed(file.record)
        assert file.text is not None, "a processed file has its text"
        return StoredText(file_id, file.record.filename, file.text)

    async def search(self, request: SearchRequest) -> SearchResult:
        scope = self._files if request.document_ids is None else request.document_ids
        texts = {
            file_id: file.text
            for file_id in scope
            if (file := self._files.get(file_id)) is not None and file.text is not None
        }
        return _search(texts, request.query, request.top_k)

    async def search_inline(self, request: InlineSearch) -> SearchResult:
        texts = {document.id: document.text for document in request.documents}
        return _search(texts, request.query, request.top_k)

    async def _enter(self, upload: UploadRecord, raw: bytes) -> FileRecord:
        async def body() -> AsyncIterator[bytes]:
            yield raw

        return await self.add(
            filename=upload.filename,
            purpose=upload.purpose,
            body=body(),
            expires_after_s=upload.file_expires_after_s,
        )

    def _record(self, file_id: str) -> FileRecord:
        return self._find(file_id).record

    def _text(self, file_id: str) -> str:
        return self._find(file_id).text or ""

    def _find(self, file_id: str) -> FakeFile:
        file = self._files.get(file_id)
        if file is None or not self._lives(file):
            raise FileMissing(file_id)
        return file

    def _lives(self, file: FakeFile) -> bool:
        return file.record.expires_at is None or file.record.expires_at > self._clock()


def _ingest(file: FakeFile) -> None:
    if file.record.purpose in UNREAD_PURPOSES:
        file.record = replace(file.record, status=FileStatus.PROCESSED)
        return
    cause = "The file is empty (0 bytes)." if not file.raw else None
    try:
        text = file.raw.decode("utf-8")
    except UnicodeDecodeError as error:
        cause = f"The text is UTF-8 but broken at byte {error.start}."
    if cause is not None:
        file.record = replace(
            file.record,
            status=FileStatus.ERROR,
            cause=cause,
            failure=FailureCode.INVALID_FILE,
            stage=Stage.READING,
            attempts=1,
        )
        return
    file.text = text
    file.record = replace(
        file.record,
        status=FileStatus.PROCESSED,
        stage=Stage.DONE,
        attempts=1,
        text_digest=file.record.digest,
        num_chars=len(text),
        num_chunks=len(list(PARAGRAPH.finditer(text))),
    )


def _search(texts: Mapping[str, str], query: str, top_k: int) -> SearchResult:
    wanted = set(WORD.findall(query.lower()))
    if not wanted:
        raise QueryRejected("the query is empty")
    passages = [each for id_, text in texts.items() for each in _passages(id_, text, wanted)]
    best = sorted(passages, key=lambda passage: -passage.score)
    found = [passage for passage in best if passage.score > 0][:top_k]
    return SearchResult(
        passages=found,
        evidence=found[0].score if found else 0.0,
        num_searched=len(passages),
        seconds=0.0,
    )


def _passages(document_id: str, text: str, wanted: set[str]) -> Iterator[Passage]:
    for paragraph in PARAGRAPH.finditer(text):
        shared = wanted & set(WORD.findall(paragraph[0].lower()))
        yield Passage(
            document_id=document_id,
            start=paragraph.start(),
            stop=paragraph.end(),
            text=paragraph[0],
            score=len(shared) / len(wanted),
            focus_start=paragraph.start(),
            focus_stop=paragraph.end(),
        )
