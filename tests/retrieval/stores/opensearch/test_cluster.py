"""What is sent to an endpoint, signed or not, and how its failures read."""

import logging
from dataclasses import dataclass
from io import BytesIO

import pytest
from aiohttp import web

from retrieval.api import SearchUnavailable
from retrieval.config import KnnEngine, OpenSearchConfig, OpenSearchKind
from retrieval.stores.opensearch.cluster import Cluster, RequestFailed, SigV4
from tests.retrieval.stores.opensearch.scripted import Sent, scripted
from tests.retrieval.stores.opensearch.sigv4 import ACCESS_KEY, SECRET_KEY, complaint


@dataclass(frozen=True)
class Credentials:
    access_key: str
    secret_key: str
    token: str | None = None


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)


def serverless(url: str) -> OpenSearchConfig:
    return OpenSearchConfig(
        url=url,
        kind=OpenSearchKind.SERVERLESS,
        engine=KnnEngine.FAISS,
        aws_region="eu-central-1",
    )


def fine(_: Sent) -> web.Response:
    return web.json_response({})


def refusal(sent: Sent, *, service: str) -> str | None:
    return complaint(
        sent.method, sent.raw_path, sent.query, sent.headers, sent.body, service=service
    )


async def test_what_arrives_at_serverless_bears_the_signature_that_aws_computes() -> None:
    async with scripted(fine) as server:
        cluster = Cluster.connect(serverless(server.url))
        await cluster.call("PUT", "/ringway-chunks-v000001", {"settings": {"größe": 1}})
        await cluster.call("GET", "/_alias/ringway-chunks")
        await cluster.call("GET", "/_cat/indices", None, {"format": "json", "h": "index,docs"})
        await cluster.aclose()
    assert [refusal(sent, service="aoss") for sent in server.sent] == [None] * 3


async def test_a_managed_domain_is_signed_for_as_es() -> None:
    async with scripted(fine) as server:
        config = OpenSearchConfig(url=server.url, aws_region="eu-central-1")
        cluster = Cluster.connect(config)
        await cluster.call("GET", "/_alias/ringway-chunks")
        await cluster.aclose()
    assert refusal(server.sent[0], service="es") is None


def test_only_headers_that_nobody_rewrites_are_signed() -> None:
    """opensearch-py signs all it is given, and older botocores leave out none of it."""
    sign = SigV4(Credentials(ACCESS_KEY, SECRET_KEY), "eu-central-1", "aoss")
    headers = {
        "Connection": "keep-alive",
        "accept-encoding": "gzip",
        "te": "trailers",
        "x-forwarded-for": "10.0.0.1",
        "Content-Type": "application/json",
    }
    signed = sign("POST", "https://example.org/index/_search", BytesIO(b"{}"), headers)
    names = signed["Authorization"].split("SignedHeaders=")[1].split(",")[0]
    assert names == "content-type;host;x-amz-content-sha256;x-amz-date"


async def test_the_check_of_signatures_can_fail() -> None:
    async with scripted(fine) as server:
        cluster = Cluster.connect(serverless(server.url))
        await cluster.call("GET", "/_alias/ringway-chunks")
        await cluster.aclose()
    [sent] = server.sent
    assert refusal(sent, service="es") is not None
    changed = complaint("PUT", sent.raw_path, "", sent.headers, sent.body, service="aoss")
    assert changed == "the signature does not match"


async def test_a_password_in_the_url_is_sent_and_never_shown() -> None:
    async with scripted(fine) as server:
        url = server.url.replace("http://", "http://ring:p%40ss@")
        config = OpenSearchConfig(url=url)
        cluster = Cluster.connect(config)
        await cluster.call("GET", "/_alias/ringway-chunks")
        await cluster.aclose()
    assert server.sent[0].headers["Authorization"] == "Basic cmluZzpwQHNz"
    assert "p%40ss" not in repr(config)


async def test_no_answer_makes_search_unavailable() -> None:
    async with scripted(fine) as server:
        url = server.url
    cluster = Cluster.connect(OpenSearchConfig(url=url))
    with pytest.raises(SearchUnavailable, match="does not answer"):
        await cluster.read("GET", "/_alias/x")
    await cluster.aclose()


async def test_only_reads_are_asked_again_after_a_broken_connection() -> None:
    def script(sent: Sent) -> web.Response | None:
        return web.json_response({"fine": True}) if sent.number else None

    async with scripted(script) as server:
        cluster = Cluster.connect(OpenSearchConfig(url=server.url))
        assert await cluster.read("GET", "/_alias/x") == {"fine": True}
        server.sent.clear()
        with pytest.raises(RequestFailed, match="does not answer"):
            await cluster.call("POST", "/_aliases", {})
        await cluster.aclose()
    assert len(server.sent) == 1


async def test_what_is_searched_for_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with scripted(lambda _: web.Response(status=503)) as server:
        cluster = Cluster.connect(OpenSearchConfig(url=server.url))
        with pytest.raises(SearchUnavailable):
            await cluster.search_many("x", [{"query": {"match": {"terms": "secret"}}}])
        await cluster.aclose()
    assert "_msearch" in caplog.text
    assert "secret" not in caplog.text


async def test_the_reason_of_an_error_is_said() -> None:
    error = {
        "root_cause": [{"type": "query_shard_exception", "reason": "failed to create query"}],
        "type": "search_phase_execution_exception",
        "caused_by": {"type": "too_many_clauses", "reason": "maxClauseCount is set to 1024"},
    }

    def script(_: Sent) -> web.Response:
        return web.json_response({"error": error, "status": 400}, status=400)

    async with scripted(script) as server:
        cluster = Cluster.connect(OpenSearchConfig(url=server.url))
        with pytest.raises(RequestFailed, match="maxClauseCount is set to 1024") as failure:
            await cluster.call("POST", "/x/_search", {})
        await cluster.aclose()
    assert (failure.value.status, failure.value.kind) == (400, "search_phase_execution_exception")
