"""One OpenSearch endpoint: sends requests and translates failures; the only module that imports
opensearchpy. Knows no chunk.
"""

import base64
import logging
import urllib.parse
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Protocol

import msgspec
import opensearchpy
from opensearchpy import AsyncHttpConnection, AsyncOpenSearch
from opensearchpy.serializer import JSONSerializer

from retrieval.api import SearchUnavailable
from retrieval.config import OpenSearchConfig, OpenSearchKind
from retrieval.stores.opensearch.documents import Json

logger = logging.getLogger(__name__)

BULK = {"content-type": "application/x-ndjson"}
_SIGNED = ("content-type", "content-encoding", "host")
_CONNECTIONS = 32


class RequestFailed(SearchUnavailable):
    """OpenSearch answered with an error; `status` is None when it did not answer at all."""

    def __init__(self, message: str, *, status: int | None, kind: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind


class Cluster:
    """Requests as JSON values. Never sends one twice, but where the caller asks for it."""

    def __init__(self, client: AsyncOpenSearch) -> None:
        self._transport = client.transport

    @classmethod
    def connect(cls, config: OpenSearchConfig) -> "Cluster":
        """No connection is opened yet. Raises ValueError when requests cannot be signed."""
        place = urllib.parse.urlsplit(config.url)
        host = f"{place.scheme}://{place.hostname}:{place.port or _default_port(place.scheme)}"
        client = AsyncOpenSearch(
            hosts=[host + place.path.rstrip("/")],
            http_auth=_signer(config) if config.aws_region else _login(place),
            connection_class=AsyncHttpConnection,
            pool_maxsize=_CONNECTIONS,
            serializer=_Serializer(),
            http_compress=False,
            max_retries=0,
            retry_on_timeout=False,
            timeout=config.timeout_s,
            ca_certs=config.ca_certs,
        )
        return cls(client)

    async def call(
        self, method: str, path: str, body: Json | None = None, params: Json | None = None
    ) -> Json:
        """The answer's object. Raises RequestFailed."""
        answer = await self._send(method, path, body, params, {})
        return answer if isinstance(answer, dict) else {}

    async def read(self, method: str, path: str, body: Json | None = None) -> Json:
        """As `call`, for requests that change nothing: sent again after a broken connection."""
        try:
            return await self.call(method, path, body)
        except RequestFailed as failure:
            if failure.status is not None:
                raise
            return await self.call(method, path, body)

    async def search_many(self, index: str, bodies: Sequence[Json]) -> list[Json]:
        """One `_msearch`; every body must succeed."""
        lines = b"".join(b"{}\n" + msgspec.json.encode(body) + b"\n" for body in bodies)
        answer = await self._send("POST", f"/{index}/_msearch", lines, None, BULK)
        found = _list(answer, "responses")
        for each in found:
            if "error" in each:
                raise RequestFailed(
                    f"OpenSearch refuses the search: {reason_of(each['error'])}",
                    status=_status(each),
                )
        return found

    async def bulk(self, index: str, lines: bytes) -> list[Json]:
        """The items of one `_bulk`, in order, each by its action's name."""
        return _list(await self._send("POST", f"/{index}/_bulk", lines, None, BULK), "items")

    async def aclose(self) -> None:
        await self._transport.close()

    async def _send(
        self,
        method: str,
        path: str,
        body: Json | bytes | None,
        params: Json | None,
        headers: Mapping[str, str],
    ) -> object:
        try:
            answer: object = await self._transport.perform_request(
                method, path, params=params, body=body, headers=dict(headers)
            )
        except opensearchpy.TransportError as error:
            raise _failure(error) from error
        except opensearchpy.OpenSearchException as error:
            raise RequestFailed("OpenSearch's answer is unreadable", status=None) from error
        return answer


def reason_of(error: object) -> str:
    """The words of an error object, its cause's where there is one."""
    if not isinstance(error, dict):
        return str(error)
    causes = error.get("root_cause")
    first = causes[0] if isinstance(causes, list) and causes else error
    caused = error.get("caused_by") or first.get("caused_by")
    tail = f" ({reason_of(caused)})" if caused else ""
    return f"{first.get('type', 'error')}: {first.get('reason', '')}{tail}"


class SigV4:
    """Signs what opensearch-py sends, but only headers that no proxy or pool rewrites.

    opensearch-py 3.2.0 signs `connection` too (opensearch-py#1044, #1047), which ends in 403.
    """

    def __init__(self, credentials: "Credentials", region: str, service: str) -> None:
        self._sign = opensearchpy.AWSV4SignerAsyncAuth(credentials, region, service)

    def __call__(
        self, method: str, url: str, body: BytesIO | None, headers: Mapping[str, str]
    ) -> dict[str, str]:
        raw = body.getvalue() if body is not None else None
        kept = {name: value for name, value in headers.items() if _is_signed(name)}
        signed: dict[str, str] = self._sign(method=method, url=url, body=raw, headers=kept)
        return signed


class Login:
    """Basic authentication. Given name and password, opensearch-py warns of aiohttp's own."""

    def __init__(self, name: str, password: str) -> None:
        encoded = base64.b64encode(f"{name}:{password}".encode()).decode()
        self._header = {"authorization": f"Basic {encoded}"}

    def __call__(
        self, method: str, url: str, body: BytesIO | None, headers: Mapping[str, str]
    ) -> dict[str, str]:
        return self._header


class Credentials(Protocol):
    """As botocore gives them."""

    @property
    def access_key(self) -> str: ...
    @property
    def secret_key(self) -> str: ...
    @property
    def token(self) -> str | None: ...


class _Serializer(JSONSerializer):
    def dumps(self, data: object) -> BytesIO:
        """A stream, because aiohttp warns of bytes above 1 MB."""
        return BytesIO(data if isinstance(data, bytes) else msgspec.json.encode(data))

    def loads(self, s: str) -> object:
        try:
            return msgspec.json.decode(s)
        except msgspec.DecodeError as error:
            raise opensearchpy.SerializationError(s[:200], error) from error


def _is_signed(name: str) -> bool:
    return name.lower() in _SIGNED or name.lower().startswith("x-amz-")


def _login(place: urllib.parse.SplitResult) -> Login | None:
    if not place.username:
        return None
    unquote = urllib.parse.unquote
    return Login(unquote(place.username), unquote(place.password or ""))


def _signer(config: OpenSearchConfig) -> SigV4:
    try:
        import boto3
    except ImportError as error:
        raise ValueError("signing requests needs boto3: install ringway[aws]") from error
    credentials = boto3.Session().get_credentials()
    if credentials is None:
        raise ValueError("no AWS credentials to sign OpenSearch's requests with")
    service = "aoss" if config.kind is OpenSearchKind.SERVERLESS else "es"
    return SigV4(credentials, str(config.aws_region), service)


def _default_port(scheme: str) -> int:
    return 443 if scheme == "https" else 80


def _failure(error: "opensearchpy.TransportError") -> RequestFailed:
    status = error.status_code if isinstance(error.status_code, int) else None
    if status is None:
        kind = "timeout" if isinstance(error, opensearchpy.ConnectionTimeout) else "connection"
        return RequestFailed(f"OpenSearch does not answer: {error.error}", status=None, kind=kind)
    details = _details(error)
    reason = reason_of(details)
    kind = str(details.get("type", "")) if isinstance(details, dict) else ""
    return RequestFailed(f"OpenSearch answers {status}: {reason}", status=status, kind=kind)


def _details(error: "opensearchpy.TransportError") -> object:
    """The error object. opensearch-py's async connection leaves it as the answer's raw text."""
    try:
        answer = msgspec.json.decode(str(error.error))
    except msgspec.DecodeError:
        return str(error.error)[:300]
    return answer.get("error", answer) if isinstance(answer, dict) else answer


def _list(answer: object, name: str) -> list[Json]:
    found = answer.get(name) if isinstance(answer, dict) else None
    if not isinstance(found, list):
        raise RequestFailed(f"OpenSearch's answer has no {name}", status=None)
    return found


def _status(answer: Json) -> int | None:
    status = answer.get("status")
    return status if isinstance(status, int) else None
