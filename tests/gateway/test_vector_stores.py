"""The official client's vector store methods against a gateway on a real socket."""

import httpx
import openai
import pytest
from openai import OpenAI

from ingest.fake import FakeLibrary
from tests.gateway.fakes import Start

LEASE = "The lease ends in May.\n\nThe keeper feeds the gulls with herring every morning."
RECIPE = "Knead flour and water.\n\nBake the bread in a hot oven."


def upload(client: OpenAI, text: str, name: str = "a.txt") -> str:
    return client.files.create(file=(name, text.encode()), purpose="assistants").id


def test_a_store_is_created_changed_listed_and_deleted(start: Start) -> None:
    client = start().client()
    made = client.vector_stores.create(
        name="papers",
        description="of the lighthouse",
        metadata={"k": "v"},
        expires_after={"anchor": "last_active_at", "days": 7},
    )
    assert (made.object, made.status, made.name) == ("vector_store", "completed", "papers")
    assert made.expires_at == made.created_at + 7 * 86_400
    assert made.file_counts.total == 0
    changed = client.vector_stores.update(made.id, name="other", expires_after=None)
    assert (changed.name, changed.metadata, changed.expires_after) == ("other", {"k": "v"}, None)
    assert client.vector_stores.retrieve(made.id) == changed
    others = [client.vector_stores.create().id for _ in range(3)]
    listed = [store.id for store in client.vector_stores.list(limit=2)]
    assert listed == [*others[::-1], made.id]
    before = client.vector_stores.list(before=others[1], limit=1, order="asc")
    assert ([store.id for store in before.data], before.has_more) == ([others[0]], True)
    deleted = client.vector_stores.delete(made.id)
    assert (deleted.deleted, deleted.object) == (True, "vector_store.deleted")
    with pytest.raises(openai.NotFoundError) as caught:
        client.vector_stores.retrieve(made.id)
    assert caught.value.code == "vector_store_not_found"


def test_files_are_attached_polled_changed_and_detached(start: Start) -> None:
    client = start().client()
    store = client.vector_stores.create()
    file_id = upload(client, LEASE)
    file = client.vector_stores.files.create_and_poll(
        file_id,
        vector_store_id=store.id,
        attributes={"year": 1911, "signed": True, "kind": "lease"},
        chunking_strategy={
            "type": "static",
            "static": {"max_chunk_size_tokens": 200, "chunk_overlap_tokens": 100},
        },
        poll_interval_ms=10,
    )
    assert (file.id, file.object, file.status) == (file_id, "vector_store.file", "completed")
    assert file.last_error is None
    assert file.attributes == {"year": 1911, "signed": True, "kind": "lease"}
    assert file.chunking_strategy is not None
    assert file.chunking_strategy.type == "static"
    assert file.chunking_strategy.static.max_chunk_size_tokens == 200
    other = client.vector_stores.files.upload_and_poll(
        vector_store_id=store.id, file=("b.txt", RECIPE.encode()), poll_interval_ms=10
    )
    assert other.chunking_strategy is not None
    assert other.chunking_strategy.type == "static"
    assert other.chunking_strategy.static.max_chunk_size_tokens == 800
    assert other.chunking_strategy.static.chunk_overlap_tokens == 400
    ids = [one.id for one in client.vector_stores.files.list(store.id, limit=1, order="asc")]
    assert ids == [file_id, other.id]
    changed = client.vector_stores.files.update(
        file_id, vector_store_id=store.id, attributes={"year": 1912}
    )
    assert changed.attributes == {"year": 1912}
    content = client.vector_stores.files.content(file_id, vector_store_id=store.id)
    assert [part.text for part in content] == [LEASE]
    deleted = client.vector_stores.files.delete(file_id, vector_store_id=store.id)
    assert (deleted.deleted, deleted.object) == (True, "vector_store.file.deleted")
    with pytest.raises(openai.NotFoundError):
        client.vector_stores.files.retrieve(file_id, vector_store_id=store.id)
    assert client.files.retrieve(file_id).id == file_id


def test_a_file_that_fails_says_why(start: Start) -> None:
    client = start().client()
    file_id = upload(client, "")
    store = client.vector_stores.create(file_ids=[file_id])
    file = client.vector_stores.files.poll(file_id, vector_store_id=store.id)
    assert file.status == "failed"
    assert file.last_error is not None
    assert file.last_error.code == "invalid_file"
    assert "empty" in file.last_error.message
    failed = client.vector_stores.files.list(store.id, filter="failed")
    assert [one.id for one in failed] == [file_id]


def test_batches_are_created_uploaded_listed_and_cancelled(start: Start) -> None:
    library = FakeLibrary()
    client = start(library=library).client()
    store = client.vector_stores.create()
    ids = [upload(client, f"{LEASE} {n}") for n in range(3)]
    batch = client.vector_stores.file_batches.create_and_poll(
        store.id, file_ids=ids, attributes={"n": 1}, poll_interval_ms=10
    )
    assert (batch.object, batch.status) == ("vector_store.files_batch", "completed")
    assert (batch.file_counts.completed, batch.file_counts.total) == (3, 3)
    sent = client.vector_stores.file_batches.upload_and_poll(
        store.id, files=[("c.txt", b"gulls"), ("d.txt", b"oven")], file_ids=ids[:1]
    )
    assert sent.file_counts.completed == 3
    own = client.vector_stores.file_batches.create(
        store.id,
        files=[
            {"file_id": ids[0], "attributes": {"own": "yes"}},
            {"file_id": ids[1], "chunking_strategy": {"type": "auto"}},
        ],
    )
    listed = client.vector_stores.file_batches.list_files(
        own.id, vector_store_id=store.id, order="asc", filter="completed"
    )
    assert [one.attributes for one in listed] == [{"own": "yes"}, {}]
    library.hold()
    waiting = client.vector_stores.file_batches.create(store.id, file_ids=[upload(client, LEASE)])
    assert waiting.status == "in_progress"
    stopped = client.vector_stores.file_batches.cancel(waiting.id, vector_store_id=store.id)
    assert (stopped.status, stopped.file_counts.cancelled) == ("cancelled", 1)
    retrieved = client.vector_stores.file_batches.retrieve(waiting.id, vector_store_id=store.id)
    assert retrieved.status == "cancelled"


def test_a_search_gives_openais_page(start: Start) -> None:
    gateway = start()
    client = gateway.client()
    store = client.vector_stores.create(file_ids=[upload(client, RECIPE, "recipe.txt")])
    client.vector_stores.files.create(
        store.id, file_id=upload(client, LEASE, "lease.txt"), attributes={"year": 1911}
    )
    page = client.vector_stores.search(store.id, query="gulls herring", max_num_results=1)
    assert page.object == "vector_store.search_results.page"
    [hit] = page.data
    assert (hit.filename, hit.attributes) == ("lease.txt", {"year": 1911})
    assert "herring" in hit.content[0].text
    assert hit.content[0].type == "text"
    assert 0 < hit.score <= 1
    both = client.vector_stores.search(
        store.id,
        query=["gulls herring", "bread oven"],
        ranking_options={"ranker": "auto", "score_threshold": 0.9},
        rewrite_query=False,
    )
    assert {hit.filename for hit in both.data} == {"lease.txt", "recipe.txt"}
    url = f"{gateway.url}/v1/vector_stores/{store.id}/search"
    raw = httpx.post(url, json={"query": ["gulls"]}).json()
    assert (raw["search_query"], raw["has_more"], raw["next_page"]) == (["gulls"], False, None)
    for filters, expected in (
        ({"type": "eq", "key": "year", "value": 1911}, {"lease.txt"}),
        ({"type": "nin", "key": "year", "value": [1911, 1912]}, {"recipe.txt"}),
        (
            {
                "type": "or",
                "filters": [
                    {"type": "gt", "key": "year", "value": 1990},
                    {
                        "type": "and",
                        "filters": [
                            {"type": "gte", "key": "year", "value": 1911},
                            {"type": "ne", "key": "year", "value": "1911"},
                        ],
                    },
                ],
            },
            {"lease.txt"},
        ),
    ):
        found = client.vector_stores.search(
            store.id,
            query="gulls herring bread oven",
            filters=filters,  # type: ignore[arg-type]
        )
        assert {hit.filename for hit in found.data} == expected


TOO_MANY = {f"k{n}": "v" for n in range(17)}
DEEP: dict[str, object] = {"type": "eq", "key": "a", "value": 1}
for _ in range(17):
    DEEP = {"type": "and", "filters": [DEEP]}


def static(size: int, overlap: int) -> dict[str, object]:
    sizes = {"max_chunk_size_tokens": size, "chunk_overlap_tokens": overlap}
    return {"type": "static", "static": sizes}


@pytest.mark.parametrize(
    ("path", "body", "param", "code"),
    [
        ("", {"nonsense": 1}, "nonsense", "unknown_parameter"),
        ("", {"file_ids": ["f"] * 501}, "file_ids", "array_above_max_length"),
        ("", {"metadata": TOO_MANY}, "metadata", "array_above_max_length"),
        ("", {"metadata": {"k": 1}}, "metadata.k", "invalid_type"),
        (
            "",
            {"expires_after": {"anchor": "last_active_at", "days": 366}},
            "expires_after.days",
            "integer_above_max_value",
        ),
        (
            "",
            {"expires_after": {"anchor": "created_at", "days": 1}},
            "expires_after.anchor",
            "invalid_value",
        ),
        (
            "/files",
            {"file_id": "f", "chunking_strategy": static(99, 0)},
            "chunking_strategy.static.max_chunk_size_tokens",
            "integer_below_min_value",
        ),
        (
            "/files",
            {"file_id": "f", "chunking_strategy": static(4097, 0)},
            "chunking_strategy.static.max_chunk_size_tokens",
            "integer_above_max_value",
        ),
        (
            "/files",
            {"file_id": "f", "chunking_strategy": static(800, 401)},
            "chunking_strategy.static",
            "invalid_value",
        ),
        (
            "/files",
            {"file_id": "f", "chunking_strategy": {"type": "smart"}},
            "chunking_strategy",
            "invalid_value",
        ),
        ("/files", {}, "file_id", "missing_required_parameter"),
        (
            "/files",
            {"file_id": "f", "attributes": TOO_MANY},
            "attributes",
            "array_above_max_length",
        ),
        ("/files", {"file_id": "f", "attributes": {"k": []}}, "attributes.k", "invalid_type"),
        ("/files/f", {}, "attributes", "missing_required_parameter"),
        ("/file_batches", {}, "file_ids", "invalid_value"),
        ("/file_batches", {"file_ids": ["f"] * 2001}, "file_ids", "array_above_max_length"),
        (
            "/file_batches",
            {"files": [{"file_id": "f"}], "attributes": {"k": 1}},
            "attributes",
            "invalid_value",
        ),
        ("/search", {}, "query", "missing_required_parameter"),
        ("/search", {"query": " ?! "}, "query", "query_rejected"),
        (
            "/search",
            {"query": "a", "rewrite_query": True},
            "rewrite_query",
            "unsupported_parameter",
        ),
        (
            "/search",
            {"query": "a", "max_num_results": 51},
            "max_num_results",
            "integer_above_max_value",
        ),
        (
            "/search",
            {"query": "a", "ranking_options": {"score_threshold": 1.5}},
            "ranking_options.score_threshold",
            "decimal_above_max_value",
        ),
        (
            "/search",
            {"query": "a", "filters": {"type": "like", "key": "k", "value": 1}},
            "filters",
            "invalid_value",
        ),
        (
            "/search",
            {"query": "a", "filters": {"type": "in", "key": "k", "value": 1}},
            "filters",
            "invalid_value",
        ),
        ("/search", {"query": "a", "filters": DEEP}, "filters", "invalid_value"),
    ],
)
def test_what_is_wrong_is_refused_by_name(
    start: Start, path: str, body: dict[str, object], param: str, code: str
) -> None:
    gateway = start()
    store_id = gateway.client().vector_stores.create().id if path else ""
    url = f"{gateway.url}/v1/vector_stores{'/' + store_id if store_id else ''}{path}"
    answer = httpx.post(url, json=body)
    error = answer.json()["error"]
    assert answer.status_code == 400, error
    assert (error["param"], error["code"]) == (param, code), error


def test_an_expired_store_refuses_and_says_since_when(start: Start) -> None:
    class Clock:
        now = 1_700_000_000.0

        def __call__(self) -> float:
            return self.now

    clock = Clock()
    client = start(library=FakeLibrary(clock=clock)).client()
    store = client.vector_stores.create(expires_after={"anchor": "last_active_at", "days": 1})
    clock.now += 2 * 86_400
    assert client.vector_stores.retrieve(store.id).status == "expired"
    with pytest.raises(openai.BadRequestError) as caught:
        client.vector_stores.search(store.id, query="gulls")
    assert caught.value.code == "vector_store_expired"
    assert str(store.expires_at) in caught.value.message
