import inspect
import re

import httpx
import pytest

import engines.api
import gateway.admin.access
import gateway.admin.board
import gateway.api
import gateway.batches.api
import gateway.openai.compaction
import gateway.responses.storage
import gateway.stored.api
import gateway.tenancy.api
import ingest.api
import ingest.embeddings_api
import ingest.stores_api
import ingest.uploads_api
import retrieval.api
from engines.api import (
    Attention,
    EngineBusy,
    EngineError,
    EngineLost,
    EngineRefused,
    GrammarRefused,
    ModelMissing,
    PromptTooLong,
    RequestExpired,
    TooLittleMemory,
)
from gateway.admin.access import AdminForbidden
from gateway.admin.board import PreconditionRequired, VersionMismatch, VersionUnknown
from gateway.api import (
    BodyTooLarge,
    ClientLeft,
    ContextRequired,
    Draining,
    Fidelity,
    GatewayError,
    InvalidRequest,
    NoEngineFits,
    Route,
    RouteForbidden,
    TemplateRefused,
    Unauthorized,
    UnknownModel,
    UnsupportedParameter,
)
from gateway.batches.api import BatchClosed, BatchStatus, BatchUnknown
from gateway.errors import FAULTS, error_body, fault_for
from gateway.openai.compaction import CompactionCut
from gateway.responses.storage import ResponseMissing
from gateway.stored.api import ChatMissing
from gateway.tenancy.api import (
    FidelityForbidden,
    Limit,
    LimitReached,
    LimitsDown,
    RequestOverLimit,
)
from ingest.api import (
    FileMissing,
    FileNotReady,
    FileRecord,
    FileStatus,
    FileTooLarge,
    FileUnreadable,
    IngestError,
    PermanentError,
    TransientError,
    UnsupportedFile,
)
from ingest.embeddings_api import TextTooLong
from ingest.stores_api import BatchMissing, VectorStoreExpired, VectorStoreMissing
from ingest.uploads_api import PartsRefused, UploadClosed, UploadMissing, UploadStatus
from retrieval.api import (
    IndexMismatch,
    QueryRejected,
    RetrievalError,
    SearchUnavailable,
    WriteRejected,
)
from tests.gateway.fakes import FailingEngine, Start

CHAT = {"model": "fake", "messages": [{"role": "user", "content": "hi"}]}

RECORD = FileRecord(
    id="f",
    filename="f.txt",
    purpose="user_data",
    num_bytes=1,
    digest="",
    created_at=1,
    status=FileStatus.ERROR,
    cause="It is empty.",
)

RAISED: list[tuple[Exception, int, str | None]] = [
    (InvalidRequest("no", param="x", code="invalid_value"), 400, "invalid_value"),
    (UnsupportedParameter("tools"), 400, "unsupported_parameter"),
    (UnknownModel("m"), 404, "model_not_found"),
    (Unauthorized("who?"), 401, "invalid_api_key"),
    (BodyTooLarge(limit_bytes=5), 413, "request_too_large"),
    (
        NoEngineFits(wanted="full", num_tokens=9, limit=8, fits=Route.RETRIEVAL),
        400,
        "context_length_exceeded",
    ),
    (ContextRequired(), 400, "context_required"),
    (RouteForbidden(Route.FULL), 403, "route_forbidden"),
    (TemplateRefused("no system"), 400, "invalid_value"),
    (Draining(), 503, "draining"),
    (FidelityForbidden(Fidelity.FULL, [Fidelity.AUTO]), 403, "fidelity_forbidden"),
    (
        LimitReached(kind=Limit.TOKENS, wanted=9, used=1, limit=8, retry_after_s=0.1),
        429,
        "rate_limit_exceeded",
    ),
    (
        RequestOverLimit(kind=Limit.TOKENS, wanted=9, limit=8, fits="1 fits."),
        429,
        "request_over_limit",
    ),
    (LimitsDown("redis://secret"), 503, "limits_unavailable"),
    (AdminForbidden(), 403, "admin_forbidden"),
    (VersionMismatch(version="0123"), 412, "version_mismatch"),
    (VersionUnknown("0123"), 404, "version_not_found"),
    (PreconditionRequired("0123"), 428, "precondition_required"),
    (ResponseMissing("resp_1"), 404, "response_not_found"),
    (ChatMissing("chatcmpl-1"), 404, "completion_not_found"),
    (CompactionCut(512), 502, "compaction_incomplete"),
    (BatchUnknown("batch_1"), 404, "batch_not_found"),
    (BatchClosed("batch_1", BatchStatus.COMPLETED), 409, "batch_closed"),
    (TextTooLong(index=1, num_tokens=9, limit=8), 400, "context_length_exceeded"),
    (GatewayError(), 500, "internal_error"),
    (
        PromptTooLong(num_tokens=9, limit=8, attention=Attention.HIERARCHICAL),
        400,
        "context_length_exceeded",
    ),
    (EngineBusy(queued=3, retry_after_s=2.2), 503, "engine_overloaded"),
    (EngineLost("gone"), 502, "engine_lost"),
    (RequestExpired("late"), 504, "request_expired"),
    (GrammarRefused("no"), 400, "invalid_json_schema"),
    (EngineRefused("no"), 400, "engine_refused"),
    (ModelMissing("/secret/path"), 503, "engine_error"),
    (TooLittleMemory(model="m", needed_bytes=2, available_bytes=1), 503, "engine_error"),
    (EngineError("odd"), 502, "engine_error"),
    (IndexMismatch(found="a", expected="b"), 503, "index_mismatch"),
    (SearchUnavailable("down"), 503, "search_unavailable"),
    (QueryRejected("empty"), 400, "query_rejected"),
    (WriteRejected(chunk_id="c", reason="odd"), 502, "write_rejected"),
    (RetrievalError("odd"), 502, "retrieval_error"),
    (FileMissing("f"), 404, "file_not_found"),
    (FileNotReady(RECORD), 409, "file_not_ready"),
    (FileUnreadable(RECORD), 400, "file_unreadable"),
    (FileTooLarge(limit_bytes=5), 413, "file_too_large"),
    (UnsupportedFile("bad"), 400, "unsupported_file"),
    (PermanentError("bad"), 400, "file_error"),
    (VectorStoreMissing("vs_1"), 404, "vector_store_not_found"),
    (VectorStoreExpired("vs_1", expired_at=1), 400, "vector_store_expired"),
    (BatchMissing("vsfb_1"), 404, "file_batch_not_found"),
    (UploadMissing("upload_1"), 404, "upload_not_found"),
    (UploadClosed("upload_1", UploadStatus.EXPIRED), 400, "upload_closed"),
    (PartsRefused("too few", param="part_ids"), 400, "invalid_value"),
    (TransientError("later"), 503, "ingest_unavailable"),
    (IngestError("odd"), 500, "ingest_error"),
    (ZeroDivisionError("secret"), 500, "internal_error"),
]


def errors_of(module: object, base: type[Exception]) -> set[type[Exception]]:
    classes = [one for _, one in inspect.getmembers(module, inspect.isclass)]
    return {one for one in classes if issubclass(one, base)}


def test_every_domain_error_has_a_fault_and_is_raised_here() -> None:
    known = (
        errors_of(engines.api, EngineError)
        | errors_of(retrieval.api, RetrievalError)
        | errors_of(ingest.api, IngestError)
        | errors_of(ingest.stores_api, IngestError)
        | errors_of(ingest.uploads_api, IngestError)
        | errors_of(ingest.embeddings_api, IngestError)
        | errors_of(gateway.api, GatewayError)
        | errors_of(gateway.batches.api, GatewayError)
        | errors_of(gateway.responses.storage, GatewayError)
        | errors_of(gateway.stored.api, GatewayError)
        | errors_of(gateway.openai.compaction, GatewayError)
        | errors_of(gateway.tenancy.api, GatewayError)
        | errors_of(gateway.admin.access, GatewayError)
        | errors_of(gateway.admin.board, GatewayError)
    )
    assert known == set(FAULTS)
    assert known - {type(error) for error, _, _ in RAISED} == {ClientLeft}


@pytest.mark.parametrize(("error", "status", "code"), RAISED, ids=lambda one: type(one).__name__)
def test_every_error_is_a_status_in_openais_shape(
    start: Start, error: Exception, status: int, code: str | None
) -> None:
    gateway = start(FailingEngine(error))
    for stream in (False, True):
        body = {**CHAT, "stream": stream, "allow_fallback": False}
        answer = httpx.post(f"{gateway.url}/v1/chat/completions", json=body)
        assert answer.status_code == status
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
        assert answer.json()["error"]["code"] == code
        assert answer.json()["error"]["message"]
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["x-request-id"].startswith("req_")
        assert "secret" not in answer.text


def test_overload_says_when_to_come_back(start: Start) -> None:
    gateway = start(FailingEngine(EngineBusy(queued=3, retry_after_s=2.2)))
    answer = httpx.post(f"{gateway.url}/v1/chat/completions", json=CHAT)
    assert answer.headers["retry-after"] == "3"


def test_a_subclass_has_its_parents_fault_and_a_stranger_is_a_500() -> None:
    class OddlyLost(EngineLost):
        pass

    assert fault_for(OddlyLost()) == FAULTS[EngineLost]
    assert fault_for(KeyError("x")).status == 500


def test_an_over_long_prompt_says_what_would_fit() -> None:
    error = NoEngineFits(wanted="full", num_tokens=9000, limit=8192, fits=Route.RETRIEVAL)
    body = error_body(error)
    assert body["ringway"] == {"num_tokens": 9000, "limit": 8192, "fits": Route.RETRIEVAL}
    assert re.search(r"9000 .* 8192 .*fidelity=\"retrieval\"", body["error"]["message"])
    assert body["error"]["param"] == "messages"


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/nothing", 404, "unknown_url"),
        ("POST", "/v1/chat/completions/", 404, "unknown_url"),
        ("PUT", "/v1/chat/completions", 405, "method_not_allowed"),
        ("GET", "/v1/models/nope", 404, "model_not_found"),
        ("GET", "/v1/models/a%2Fb", 404, "model_not_found"),
        ("GET", "/v1/files?limit=many", 400, "invalid_value"),
        ("GET", "/v1/files?order=up", 400, "invalid_value"),
        ("GET", "/v1/files?after=file-x", 404, "file_not_found"),
        ("GET", "/v1/files/file-x", 404, "file_not_found"),
        ("GET", "/v1/files/file-x/content", 404, "file_not_found"),
        ("DELETE", "/v1/files/file-x", 404, "file_not_found"),
        ("POST", "/v1/files", 400, "missing_required_parameter"),
        ("POST", "/v1/chat/completions", 400, "invalid_json"),
        ("GET", "/v1/vector_stores/vs_x", 404, "vector_store_not_found"),
        ("GET", "/v1/vector_stores?limit=101", 400, "invalid_value"),
        ("GET", "/v1/vector_stores?after=vs_x", 404, "vector_store_not_found"),
        ("POST", "/v1/vector_stores", 400, "invalid_json"),
        ("POST", "/v1/uploads/upload_x/parts", 400, "missing_required_parameter"),
    ],
)
def test_other_mistakes_have_the_same_shape(
    start: Start, method: str, path: str, status: int, code: str
) -> None:
    answer = httpx.request(method, f"{start().url}{path}")
    assert answer.status_code == status
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
    assert answer.json()["error"]["code"] == code
