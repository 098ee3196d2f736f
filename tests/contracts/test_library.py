"""What every `Library` must do: the fake that the gateway's tests use, and the real one."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from ingest.api import (
    FileMissing,
    FileRecord,
    FileStatus,
    FileTooLarge,
    FileUnreadable,
    InlineDocument,
    InlineSearch,
    Library,
)
from ingest.fake import FakeLibrary
from retrieval.api import QueryRejected, SearchRequest
from tests.ingest.house import LIMIT_BYTES, open_house, pieces

LEASE = (
    "The lease of the lighthouse begins in May and costs nine hundred guilders.\n\n"
    "The keeper feeds the gulls every morning with herring from the harbour.\n\n"
    "Nobody may paint the lantern room in any colour but white."
)
RECIPE = "Knead flour and water.\n\nBake the bread for an hour in a hot oven."


@dataclass(frozen=True, slots=True)
class Bench:
    """A library, and how to let it finish its ingest."""

    library: Library
    settle: Callable[[], Awaitable[None]]

    async def add(self, text: str, *, purpose: str = "user_data") -> FileRecord:
        body = pieces(text.encode())
        return await self.library.add(filename="f.txt", purpose=purpose, body=body)

    async def processed(self, text: str) -> str:
        record = await self.add(text)
        await self.settle()
        return record.id


@asynccontextmanager
async def fake_bench(_: Path) -> AsyncIterator[Bench]:
    async def settle() -> None:
        return None

    yield Bench(FakeLibrary(max_file_bytes=LIMIT_BYTES), settle)


@asynccontextmanager
async def local_bench(folder: Path) -> AsyncIterator[Bench]:
    async with open_house(folder) as house:
        yield Bench(house.library, house.settle)


@pytest.fixture(params=[fake_bench, local_bench])
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    async with request.param(tmp_path) as opened:
        yield opened


async def test_an_added_file_is_uploaded_then_processed(bench: Bench) -> None:
    record = await bench.add(LEASE)
    assert record.status is FileStatus.UPLOADED
    assert record.id.startswith("file-")
    assert len(record.id) == 29
    assert record.num_bytes == len(LEASE)
    assert len(record.digest) == 64
    await bench.settle()
    record = await bench.library.get(record.id)
    assert (record.status, record.cause) == (FileStatus.PROCESSED, None)
    assert record.num_chars == len(LEASE)
    assert record.num_chunks is not None
    assert (await bench.library.text(record.id)).text == LEASE


async def test_content_is_the_uploaded_bytes(bench: Bench) -> None:
    record = await bench.add(LEASE)
    stream = bench.library.content(record.id)
    assert b"".join([piece async for piece in stream]).decode() == LEASE


async def test_a_file_over_the_limit_stores_nothing(bench: Bench) -> None:
    with pytest.raises(FileTooLarge) as caught:
        await bench.add("x" * (LIMIT_BYTES + 1))
    assert caught.value.limit_bytes == LIMIT_BYTES
    page = await bench.library.list(after=None, limit=10, ascending=True, purpose=None)
    assert page.files == []


async def test_a_file_that_cannot_be_read_has_a_cause_and_no_text(bench: Bench) -> None:
    body = pieces("naïve ".encode() * 20 + b"\xff")
    record = await bench.library.add(filename="b.txt", purpose="user_data", body=body)
    await bench.settle()
    record = await bench.library.get(record.id)
    assert record.status is FileStatus.ERROR
    assert record.cause is not None
    assert "byte 140" in record.cause
    with pytest.raises(FileUnreadable) as caught:
        await bench.library.text(record.id)
    assert caught.value.record.cause == record.cause


async def test_nobodys_file_is_missing_everywhere(bench: Bench) -> None:
    library, nobody = bench.library, "file-nobody"
    with pytest.raises(FileMissing) as caught:
        await library.get(nobody)
    assert caught.value.file_id == nobody
    for call in (library.text(nobody), library.delete(nobody)):
        with pytest.raises(FileMissing):
            await call
    with pytest.raises(FileMissing):
        await anext(aiter(library.content(nobody)))
    with pytest.raises(FileMissing):
        await library.list(after=nobody, limit=1, ascending=True, purpose=None)


async def test_pages_follow_the_order_of_creation_both_ways(bench: Bench) -> None:
    ids = [(await bench.add(f"text {n}")).id for n in range(5)]

    async def walk(*, ascending: bool) -> list[str]:
        seen: list[str] = []
        has_more, after = True, None
        while has_more:
            page = await bench.library.list(after=after, limit=2, ascending=ascending, purpose=None)
            seen += [record.id for record in page.files]
            has_more, after = page.has_more, seen[-1]
        return seen

    assert await walk(ascending=True) == ids
    assert await walk(ascending=False) == ids[::-1]


async def test_a_page_holds_one_purpose_only_when_asked(bench: Bench) -> None:
    await bench.add("a", purpose="batch")
    mine = await bench.add("b", purpose="user_data")
    page = await bench.library.list(after=None, limit=9, ascending=True, purpose="user_data")
    assert [record.id for record in page.files] == [mine.id]
    assert not page.has_more


async def test_a_search_finds_the_passage_with_its_exact_span(bench: Bench) -> None:
    lease, recipe = await bench.processed(LEASE), await bench.processed(RECIPE)
    result = await bench.library.search(
        SearchRequest(query="what do the gulls eat, herring?", document_ids=[lease, recipe])
    )
    best = result.passages[0]
    assert best.document_id == lease
    assert "herring" in best.text
    assert best.text == LEASE[best.start : best.stop]
    assert 0 <= best.score <= 1
    assert 0 <= result.evidence <= 1
    assert result.num_searched >= 2


async def test_a_search_never_leaves_its_scope(bench: Bench) -> None:
    await bench.processed(LEASE)
    recipe = await bench.processed(RECIPE)
    result = await bench.library.search(
        SearchRequest(query="herring for the gulls", document_ids=[recipe])
    )
    assert {passage.document_id for passage in result.passages} <= {recipe}


async def test_a_search_among_no_ready_file_is_empty(bench: Bench) -> None:
    result = await bench.library.search(
        SearchRequest(query="herring", document_ids=["file-nobody"])
    )
    assert (list(result.passages), result.evidence, result.num_searched) == ([], 0.0, 0)


async def test_a_query_without_words_is_rejected(bench: Bench) -> None:
    lease = await bench.processed(LEASE)
    with pytest.raises(QueryRejected):
        await bench.library.search(SearchRequest(query=" ?! ", document_ids=[lease]))
    with pytest.raises(QueryRejected):
        await bench.library.search_inline(InlineSearch(documents=[], query=" "))


async def test_an_inline_search_names_the_callers_documents(bench: Bench) -> None:
    documents = [InlineDocument("lease", LEASE), InlineDocument("recipe", RECIPE)]
    for _ in range(2):
        result = await bench.library.search_inline(
            InlineSearch(documents=documents, query="how long is the bread in the oven")
        )
        best = result.passages[0]
        assert best.document_id == "recipe"
        assert best.text == RECIPE[best.start : best.stop]
        assert result.num_searched >= 2


async def test_a_deleted_file_is_gone_at_once_and_for_good(bench: Bench) -> None:
    lease = await bench.processed(LEASE)
    await bench.library.delete(lease)
    for _ in range(2):
        with pytest.raises(FileMissing):
            await bench.library.get(lease)
        with pytest.raises(FileMissing):
            await bench.library.delete(lease)
        with pytest.raises(FileMissing):
            await anext(aiter(bench.library.content(lease)))
        result = await bench.library.search(SearchRequest(query="herring", document_ids=[lease]))
        assert list(result.passages) == []
        page = await bench.library.list(after=None, limit=9, ascending=True, purpose=None)
        assert page.files == []
        await bench.settle()


async def test_many_uploads_at_once_are_all_kept(bench: Bench) -> None:
    records = await asyncio.gather(*(bench.add(f"number {n}") for n in range(20)))
    assert len({record.id for record in records}) == 20
    page = await bench.library.list(after=None, limit=100, ascending=True, purpose=None)
    assert {record.id for record in page.files} == {record.id for record in records}


async def test_an_upload_that_breaks_off_is_not_there(bench: Bench) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"the beginning"
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await bench.library.add(filename="f", purpose="user_data", body=broken())
    page = await bench.library.list(after=None, limit=9, ascending=True, purpose=None)
    assert page.files == []


async def test_a_batch_file_is_kept_as_it_came_and_never_read(bench: Bench) -> None:
    record = await bench.add('{"herring": 1}', purpose="batch")
    for _ in range(2):
        assert (await bench.library.get(record.id)).status is FileStatus.PROCESSED
        with pytest.raises(FileUnreadable, match="batch"):
            await bench.library.text(record.id)
        found = await bench.library.search(SearchRequest(query="herring", document_ids=[record.id]))
        assert list(found.passages) == []
        await bench.settle()
    content = b"".join([piece async for piece in bench.library.content(record.id)])
    assert content == b'{"herring": 1}'
