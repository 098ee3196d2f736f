"""The only table from domain errors to HTTP; knows statuses and codes, decides nothing else."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

from engines.api import (
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
    GatewayError,
    InvalidRequest,
    NoEngineFits,
    RouteForbidden,
    TemplateRefused,
    Unauthorized,
    UnknownModel,
    UnsupportedParameter,
)
from gateway.batches.api import BatchClosed, BatchUnknown
from gateway.openai.compaction import CompactionCut
from gateway.openai.errors import ErrorBody, ErrorObject, LengthFacts
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
    FileTooLarge,
    FileUnreadable,
    IngestError,
    PermanentError,
    TransientError,
    UnsupportedFile,
)
from ingest.embeddings_api import TextTooLong
from ingest.stores_api import BatchMissing, VectorStoreExpired, VectorStoreMissing
from ingest.uploads_api import PartsRefused, UploadClosed, UploadMissing
from retrieval.api import (
    IndexMismatch,
    QueryRejected,
    RetrievalError,
    SearchUnavailable,
    WriteRejected,
)


@dataclass(frozen=True, slots=True)
class HttpFault:
    """What an error looks like from outside. `hidden`: the message is not for the caller."""

    status: int
    type: str
    code: str | None
    param: str | None = None
    hidden: bool = False


INVALID = "invalid_request_error"
SERVER = "server_error"

FAULTS: Mapping[type[Exception], HttpFault] = {
    InvalidRequest: HttpFault(400, INVALID, None),
    UnsupportedParameter: HttpFault(400, INVALID, "unsupported_parameter"),
    UnknownModel: HttpFault(404, INVALID, "model_not_found", "model"),
    Unauthorized: HttpFault(401, INVALID, "invalid_api_key"),
    BodyTooLarge: HttpFault(413, INVALID, "request_too_large"),
    NoEngineFits: HttpFault(400, INVALID, "context_length_exceeded", "messages"),
    ContextRequired: HttpFault(400, INVALID, "context_required", "fidelity"),
    RouteForbidden: HttpFault(403, INVALID, "route_forbidden", "fidelity"),
    AdminForbidden: HttpFault(403, INVALID, "admin_forbidden"),
    VersionMismatch: HttpFault(412, INVALID, "version_mismatch"),
    VersionUnknown: HttpFault(404, INVALID, "version_not_found", "version"),
    PreconditionRequired: HttpFault(428, INVALID, "precondition_required"),
    Draining: HttpFault(503, SERVER, "draining"),
    FidelityForbidden: HttpFault(403, INVALID, "fidelity_forbidden", "fidelity"),
    LimitReached: HttpFault(429, "rate_limit_error", "rate_limit_exceeded"),
    RequestOverLimit: HttpFault(429, "rate_limit_error", "request_over_limit"),
    LimitsDown: HttpFault(503, SERVER, "limits_unavailable", hidden=True),
    TemplateRefused: HttpFault(400, INVALID, "invalid_value", "messages"),
    ClientLeft: HttpFault(499, INVALID, "client_closed_request"),
    BatchUnknown: HttpFault(404, INVALID, "batch_not_found", "batch_id"),
    BatchClosed: HttpFault(409, INVALID, "batch_closed", "batch_id"),
    ChatMissing: HttpFault(404, INVALID, "completion_not_found", "completion_id"),
    CompactionCut: HttpFault(502, SERVER, "compaction_incomplete"),
    ResponseMissing: HttpFault(404, INVALID, "response_not_found", "response_id"),
    GatewayError: HttpFault(500, SERVER, "internal_error", hidden=True),
    PromptTooLong: HttpFault(400, INVALID, "context_length_exceeded", "messages"),
    EngineBusy: HttpFault(503, SERVER, "engine_overloaded"),
    EngineLost: HttpFault(502, SERVER, "engine_lost"),
    RequestExpired: HttpFault(504, SERVER, "request_expired"),
    EngineRefused: HttpFault(400, INVALID, "engine_refused"),
    GrammarRefused: HttpFault(400, INVALID, "invalid_json_schema", "response_format"),
    ModelMissing: HttpFault(503, SERVER, "engine_error", hidden=True),
    TooLittleMemory: HttpFault(503, SERVER, "engine_error", hidden=True),
    EngineError: HttpFault(502, SERVER, "engine_error"),
    IndexMismatch: HttpFault(503, SERVER, "index_mismatch"),
    SearchUnavailable: HttpFault(503, SERVER, "search_unavailable"),
    QueryRejected: HttpFault(400, INVALID, "query_rejected", "messages"),
    WriteRejected: HttpFault(502, SERVER, "write_rejected"),
    RetrievalError: HttpFault(502, SERVER, "retrieval_error"),
    FileMissing: HttpFault(404, INVALID, "file_not_found", "file_id"),
    FileNotReady: HttpFault(409, INVALID, "file_not_ready", "file_id"),
    FileUnreadable: HttpFault(400, INVALID, "file_unreadable", "file_id"),
    FileTooLarge: HttpFault(413, INVALID, "file_too_large", "file"),
    UnsupportedFile: HttpFault(400, INVALID, "unsupported_file", "file"),
    PermanentError: HttpFault(400, INVALID, "file_error", "file"),
    VectorStoreMissing: HttpFault(404, INVALID, "vector_store_not_found", "vector_store_id"),
    VectorStoreExpired: HttpFault(400, INVALID, "vector_store_expired", "vector_store_id"),
    BatchMissing: HttpFault(404, INVALID, "file_batch_not_found", "batch_id"),
    UploadMissing: HttpFault(404, INVALID, "upload_not_found", "upload_id"),
    UploadClosed: HttpFault(400, INVALID, "upload_closed", "upload_id"),
    PartsRefused: HttpFault(400, INVALID, "invalid_value", "part_ids"),
    TextTooLong: HttpFault(400, INVALID, "context_length_exceeded", "input"),
    TransientError: HttpFault(503, SERVER, "ingest_unavailable"),
    IngestError: HttpFault(500, SERVER, "ingest_error"),
}

NO_RETRY: Mapping[str, str] = {"x-should-retry": "false"}
"""OpenAI's SDKs try any other 429 again."""

UNFORESEEN = HttpFault(500, SERVER, "internal_error", hidden=True)


def fault_for(error: Exception) -> HttpFault:
    """Most specific entry along the error's MRO; anything unlisted is a 500."""
    for kind in type(error).__mro__:
        if kind in FAULTS:
            return FAULTS[kind]
    return UNFORESEEN


def error_body(error: Exception) -> ErrorBody:
    """OpenAI's error object; an over-long prompt adds its numbers beside it."""
    fault = fault_for(error)
    message = str(error)
    if fault.hidden or not message:
        message = "The server had an error while processing your request."
    body = ErrorBody(
        error=ErrorObject(
            message=message,
            type=fault.type,
            param=_param_of(error, fault),
            code=_code_of(error, fault),
        )
    )
    if isinstance(error, NoEngineFits | PromptTooLong | TextTooLong):
        fits = error.fits if isinstance(error, NoEngineFits) else None
        body["ringway"] = LengthFacts(num_tokens=error.num_tokens, limit=error.limit, fits=fits)
    return body


def error_headers(error: Exception) -> dict[str, str]:
    if isinstance(error, EngineBusy):
        return {"retry-after": str(max(1, ceil(error.retry_after_s)))}
    if isinstance(error, LimitReached):
        milliseconds = max(1, ceil(error.retry_after_s * 1000))
        headers = {
            "retry-after": str(ceil(milliseconds / 1000)),
            "retry-after-ms": str(milliseconds),
        }
        return {**headers, **(NO_RETRY if error.kind is Limit.BUDGET else {})}
    if isinstance(error, RequestOverLimit):
        return dict(NO_RETRY)
    if isinstance(error, LimitsDown):
        return {"retry-after": "1"}
    if isinstance(error, Draining):
        return {"retry-after": str(error.retry_after_s)}
    if isinstance(error, VersionMismatch):
        return {"etag": f'"{error.version}"'}
    if isinstance(error, TransientError | SearchUnavailable):
        return {"retry-after": "1"}
    if isinstance(error, Unauthorized):
        return {"www-authenticate": "Bearer"}
    return {}


def _code_of(error: Exception, fault: HttpFault) -> str | None:
    if isinstance(error, InvalidRequest):
        return error.code
    if isinstance(error, LimitReached) and error.kind is Limit.BUDGET:
        return "insufficient_quota"  # as OpenAI says that waiting a minute will not do
    return fault.code


def _param_of(error: Exception, fault: HttpFault) -> str | None:
    if isinstance(error, InvalidRequest | UnsupportedParameter | PartsRefused):
        return error.param
    return fault.param
