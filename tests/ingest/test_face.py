"""The worker's face and its client, over a real socket."""

import asyncio
import socket
from array import array
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx
import pytest
import uvicorn

from ingest.api import InlineDocument, InlineSearch
from ingest.client import RemoteSearcher
from ingest.embeddings_api import Embedded, EmbedderFacts, TextTooLong
from ingest.embeddings_client import RemoteEmbeddings
from ingest.face import Services, create_app
from ingest.jobs import JobState
from retrieval.api import (
    Passage,
    QueryRejected,
    RetrievalError,
    SearchRequest,
    SearchResult,
    SearchUnavailable,
)

RESULT = SearchResult(
    passages=[
        Passage(
            document_id="file-1",
            start=3,
            stop=9,
            text="größe",
            score=0.5,
            focus_start=3,
            focus_stop=9,
        )
    ],
    evidence=0.25,
    num_searched=7,
    seconds=0.125,
)
QUESTION = SearchRequest(query="größe?", document_ids=["file-1"], top_k=3, deadline_s=2.0)
INLINE = InlineSearch(documents=[InlineDocument("a", "größe")], query="größe?")


@dataclass(slots=True)
class Searches:
    """Both searchers; answers RESULT or raises `error`."""

    error: RetrievalError | None = None
    asked: list[SearchRequest | InlineSearch] = field(default_factory=list)
    num_nudges: int = 0

    async def search(self, request: SearchRequest) -> SearchResult:
        return self._answer(request)

    async def search_inline(self, request: InlineSearch) -> SearchResult:
        return self._answer(request)

    def nudge(self) -> None:
        self.num_nudges += 1

    async def depth(self) -> dict[JobState, int]:
        return {JobState.QUEUED: 4}

    def _answer(self, request: SearchRequest | InlineSearch) -> SearchResult:
        self.asked.append(request)
        if self.error is not None:
            raise self.error
        return RESULT


@dataclass(frozen=True, slots=True)
class Served:
    searches: Searches
    services: Services
    url: str
    http: httpx.AsyncClient
    remote: RemoteSearcher


@asynccontextmanager
async def serving(services: Services) -> AsyncIterator[str]:
    config = uvicorn.Config(create_app(services), log_config=None, lifespan="off")
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        async with asyncio.TaskGroup() as group:
            group.create_task(server.serve(sockets=[listener]))
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
            server.should_exit = True


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    searches = Searches()
    services = Services(
        nudge=searches.nudge, depth=searches.depth, searcher=searches, inline=searches
    )
    async with serving(services) as url, httpx.AsyncClient() as http:
        yield Served(searches, services, url, http, RemoteSearcher(url, http))


async def test_a_search_travels_there_and_back_unchanged(served: Served) -> None:
    assert await served.remote.search(QUESTION) == RESULT
    assert await served.remote.search_inline(INLINE) == RESULT
    assert served.searches.asked == [QUESTION, INLINE]


@pytest.mark.parametrize(
    "error", [QueryRejected("the query is empty"), SearchUnavailable("the store is down")]
)
async def test_errors_arrive_as_what_they_were(served: Served, error: RetrievalError) -> None:
    served.searches.error = error
    for call in (served.remote.search(QUESTION), served.remote.search_inline(INLINE)):
        with pytest.raises(type(error), match=str(error)):
            await call


async def test_a_nudge_arrives(served: Served) -> None:
    await served.remote.nudge()
    assert served.searches.num_nudges == 1


async def test_readiness_waits_for_the_models_and_liveness_does_not(served: Served) -> None:
    assert (await served.http.get(f"{served.url}/health/ready")).status_code == 200
    served.services.searcher = served.services.inline = None
    assert (await served.http.get(f"{served.url}/health/ready")).status_code == 503
    assert (await served.http.get(f"{served.url}/health/live")).status_code == 200
    for call in (served.remote.search(QUESTION), served.remote.search_inline(INLINE)):
        with pytest.raises(SearchUnavailable, match="still loading"):
            await call


async def test_a_malformed_body_is_a_fault_and_not_a_crash(served: Served) -> None:
    for body in (b"", b"{", b"[]", b'{"query": 3, "document_ids": []}'):
        response = await served.http.post(f"{served.url}/v1/search", content=body)
        assert response.status_code == 400
        assert response.json()["code"] == "invalid_request"


async def test_metrics_count_jobs_searches_and_failures(served: Served) -> None:
    await served.remote.search(QUESTION)
    served.searches.error = QueryRejected("no")
    with pytest.raises(QueryRejected):
        await served.remote.search(QUESTION)
    text = (await served.http.get(f"{served.url}/metrics")).text
    assert 'ringway_ingest_jobs{state="queued"} 4.0' in text
    assert 'ringway_search_seconds_count{kind="files"} 2.0' in text
    assert 'ringway_search_failures_total{code="query_rejected",kind="files"} 1.0' in text


async def test_a_worker_that_is_not_there_is_unavailable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    async with httpx.AsyncClient() as http:
        remote = RemoteSearcher(f"http://127.0.0.1:{port}", http)
        with pytest.raises(SearchUnavailable, match="cannot be reached"):
            await remote.search(QUESTION)
        with pytest.raises(SearchUnavailable):
            await remote.nudge()


@pytest.mark.parametrize(
    ("status", "body"), [(200, b"<html>"), (500, b"oops"), (404, b'{"detail": "Not Found"}')]
)
async def test_a_stranger_on_the_port_is_unavailable(status: int, body: bytes) -> None:
    transport = httpx.MockTransport(lambda request: httpx.Response(status, content=body))
    async with httpx.AsyncClient(transport=transport) as http:
        with pytest.raises(SearchUnavailable):
            await RemoteSearcher("http://worker", http).search(QUESTION)


class Numbers:
    """`Embeddings` that answers with the length of each text; refuses what is over ten words."""

    async def facts(self) -> EmbedderFacts:
        return FACTS

    async def embed(self, texts: Sequence[str]) -> Embedded:
        for index, text in enumerate(texts):
            if (num := len(text.split())) > FACTS.max_tokens:
                raise TextTooLong(index=index, num_tokens=num, limit=FACTS.max_tokens)
        return Embedded(
            vectors=[array("f", [len(text), 0.5]) for text in texts],
            num_tokens=[len(text.split()) for text in texts],
        )


FACTS = EmbedderFacts(model="numbers", dimension=2, max_tokens=10)


async def test_vectors_and_counts_travel_there_and_back_unchanged(served: Served) -> None:
    remote = RemoteEmbeddings(served.url, served.http)
    for call in (remote.facts(), remote.embed(["a"])):
        with pytest.raises(SearchUnavailable, match="still loading"):
            await call
    served.services.embeddings = Numbers()
    assert await remote.facts() == FACTS
    assert await remote.embed(["größe", "two words"]) == await Numbers().embed(
        ["größe", "two words"]
    )
    assert await remote.embed([]) == Embedded(vectors=[], num_tokens=[])
    with pytest.raises(TextTooLong) as refused:
        await remote.embed(["short", "long " * 11])
    assert (refused.value.index, refused.value.num_tokens, refused.value.limit) == (1, 11, 10)


async def test_an_embedder_that_is_not_there_or_a_stranger_is_unavailable() -> None:
    for answer in (httpx.Response(200, content=b"<html>"), httpx.Response(500, content=b"oops")):
        transport = httpx.MockTransport(lambda request, answer=answer: answer)
        async with httpx.AsyncClient(transport=transport) as http:
            remote = RemoteEmbeddings("http://worker", http)
            for call in (remote.facts(), remote.embed(["a"])):
                with pytest.raises(SearchUnavailable):
                    await call
