"""What one tenant holds is missing for every other, in the fake library and in the real one."""

import sqlite3
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path

import pytest

from ingest.api import FileMissing, FileStatus, InlineDocument, InlineSearch
from ingest.database import Database, sqlite_url
from ingest.ledger import Ledger
from ingest.stores_api import (
    BatchMissing,
    NewStoreFile,
    NewVectorStore,
    PageRequest,
    StoreChanges,
    StoreSearch,
    VectorStoreMissing,
)
from ingest.uploads_api import NewUpload, UploadMissing
from retrieval.api import SearchRequest
from tests.contracts.library_benches import BENCHES, LEASE, Bench, OpenBench
from tests.ingest.house import pieces

NEW_UPLOAD = NewUpload(
    filename="l.txt", purpose="assistants", mime_type="text/plain", num_bytes=len(LEASE)
)


@pytest.fixture(params=BENCHES)
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    make: OpenBench = request.param
    async with make(tmp_path) as opened:
        yield opened


async def missing(*tries: Awaitable[object]) -> None:
    for one in tries:
        with pytest.raises((FileMissing, VectorStoreMissing, UploadMissing, BatchMissing)):
            await one


async def test_files_are_their_tenants_alone(bench: Bench) -> None:
    acme, other = bench.library.for_tenant("acme"), bench.library.for_tenant("other")
    body = pieces(LEASE.encode())
    file_id = (await acme.add(filename="f.txt", purpose="assistants", body=body)).id
    await bench.settle()
    assert (await acme.get(file_id)).status is FileStatus.PROCESSED
    for library in (other, bench.library):
        await missing(library.get(file_id), library.text(file_id), library.delete(file_id))
        await missing(anext(library.content(file_id)))
        page = await library.list(after=None, limit=9, ascending=True, purpose=None)
        assert list(page.files) == []
        await missing(library.list(after=file_id, limit=9, ascending=True, purpose=None))
        wanted = SearchRequest(query="lighthouse lease", document_ids=[file_id])
        assert list((await library.search(wanted)).passages) == []
    assert (await acme.text(file_id)).text == LEASE
    inline = InlineSearch(documents=[InlineDocument("d", LEASE)], query="lease of the lighthouse")
    assert (await other.search_inline(inline)).passages
    await acme.delete(file_id)
    await missing(acme.get(file_id))


async def test_stores_are_their_tenants_alone_and_take_no_foreign_file(bench: Bench) -> None:
    acme, other = bench.library.for_tenant("acme"), bench.library.for_tenant("other")
    body = pieces(LEASE.encode())
    file_id = (await acme.add(filename="f.txt", purpose="assistants", body=body)).id
    held = NewStoreFile(file_id=file_id)
    store_id = (await acme.stores.create(NewVectorStore(files=[held]))).id
    batch_id = (await acme.stores.add_batch(store_id, [held])).id
    await bench.settle()
    query = StoreSearch(queries=["lighthouse lease"])
    assert (await acme.stores.search(store_id, query)).hits
    theirs = (await other.stores.create(NewVectorStore())).id
    stores = other.stores
    await missing(
        stores.get(store_id),
        stores.update(store_id, StoreChanges(name="x")),
        stores.delete(store_id),
        stores.search(store_id, query),
        stores.add_file(store_id, held),
        stores.add_file(theirs, held),
        stores.add_batch(theirs, [held]),
        stores.create(NewVectorStore(files=[held])),
        stores.list_files(store_id, PageRequest()),
        stores.get_file(store_id, file_id),
        stores.update_file(store_id, file_id, {"a": 1}),
        stores.remove_file(store_id, file_id),
        stores.get_batch(store_id, batch_id),
        stores.cancel_batch(store_id, batch_id),
    )
    assert [one.id for one in (await stores.list(PageRequest())).items] == [theirs]
    assert [one.id for one in (await acme.stores.list(PageRequest())).items] == [store_id]


async def test_uploads_are_their_tenants_alone_and_so_are_their_files(bench: Bench) -> None:
    acme, other = bench.library.for_tenant("acme"), bench.library.for_tenant("other")
    upload_id = (await acme.uploads.create(NEW_UPLOAD)).id
    await missing(
        other.uploads.get(upload_id),
        other.uploads.add_part(upload_id, pieces(b"x")),
        other.uploads.complete(upload_id, [], md5=None),
        other.uploads.cancel(upload_id),
    )
    part = await acme.uploads.add_part(upload_id, pieces(LEASE.encode()))
    done = await acme.uploads.complete(upload_id, [part.id], md5=None)
    assert done.file is not None
    assert (await acme.get(done.file.id)).num_bytes == len(LEASE)
    await missing(other.get(done.file.id))


async def test_what_was_there_before_there_were_tenants_is_the_local_ones(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    await (await Database.connect(sqlite_url(path))).aclose()
    age(path)
    database = await Database.connect(sqlite_url(path))
    try:
        assert (await Ledger(database, tenant="local").get("file-1")).record.tenant == "local"
        with pytest.raises(FileMissing):
            await Ledger(database, tenant="acme").get("file-1")
    finally:
        await database.aclose()


def age(path: Path) -> None:
    """Make the database one of an older version, with a file in it."""
    connection = sqlite3.connect(path)
    for table in ("files", "vector_stores", "uploads"):
        connection.execute(f"ALTER TABLE {table} DROP COLUMN tenant")
    connection.execute(
        "INSERT INTO files (id, filename, purpose, num_bytes, digest, created_at, status, notes) "
        "VALUES ('file-1', 'a.txt', 'user_data', 1, '00', 1, 'uploaded', '[]')"
    )
    connection.commit()
    connection.close()
