"""What the rest of Ringway may know of engines: values, the `Engine` protocol and its errors.

Token ids in, token ids out. Nothing here knows text, documents or HTTP, and importing it
never imports torch.
"""

from array import array
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol


class Attention(StrEnum):
    """How the model attends to its prompt."""

    FULL = "full"
    HIERARCHICAL = "hierarchical"


class FinishReason(StrEnum):
    """The last two are said only by engines that read chat."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"
    CONTENT_FILTER = "content_filter"


class Reads(StrEnum):
    """What an engine takes as its prompt: token ids, or OpenAI's chat messages."""

    IDS = "ids"
    CHAT = "chat"


class GrammarKind(StrEnum):
    JSON_OBJECT = "json_object"
    JSON_SCHEMA = "json_schema"
    REGEX = "regex"
    LARK = "lark"


@dataclass(frozen=True, slots=True)
class Grammar:
    """What an answer must be. `source` is the JSON schema or the expression; "" for any object.

    Lark is the dialect of llguidance; JSON schemas may stand inside it.
    """

    kind: GrammarKind
    source: str = ""


class EngineStatus(StrEnum):
    STARTING = "starting"
    READY = "ready"
    DEGRADED = "degraded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How one token is drawn from the logits. `temperature=0` is greedy.

    The same seed gives the same tokens for any number of ranks (float32): a token's randomness
    depends on the seed and its position only.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    top_logprobs: int | None = None
    """None: no logprobs. 0: the sampled token's. k: the k likeliest as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateRequest:
    """One prompt and how to answer it.

    `prompt_ids` has typecode "i": a million ids cost 4 MB where a list costs about 36 MB.
    `question_start` is the index of the first token of the question: tokens before it are
    context (the chat template's opening and the documents), tokens from it on are the closing
    text that hierarchical attention asks with. `document_starts` are ascending indices at which
    a new document begins; a hierarchical chunk does not cross one when it can be helped.
    `deadline_s` is time.monotonic() seconds of the process that holds the value, not a duration.
    """

    request_id: str
    prompt_ids: "array[int]"
    max_new_tokens: int
    attention: Attention = Attention.FULL
    question_start: int = 0
    document_starts: tuple[int, ...] = ()
    sampling: Sampling = field(default_factory=Sampling)
    stop_ids: tuple[int, ...] = ()
    """Token ids that end the answer; the id itself is not yielded."""
    deadline_s: float = float("inf")
    service_tier: str = "default"
    """Scheduling class: priority, default or flex."""
    n: int = 1
    """Answers to one reading of the prompt; answer i is drawn with seed + i."""
    grammar: Grammar | None = None
    """Tokens that would leave it are never drawn; GrammarRefused if it cannot be compiled."""
    cache_key: str = ""
    """Whose KV may be reused: tenant and session. KV is never shared between different keys."""
    chat: Mapping[str, object] | None = None
    """The same prompt as a body of OpenAI's chat API, for engines that read chat; its `messages`,
    `tools` and `response_format` say what ids cannot."""
    traceparent: str = ""
    """W3C's header of the trace that this belongs to; empty where nobody traces."""

    @property
    def is_sampled(self) -> bool:
        """Whether somebody will look at the trace: the lowest bit of its flags."""
        flags = self.traceparent[-1:]
        return flags in set("13579bdf") and self.traceparent.count("-") == 3


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    id: int
    logprob: float


@dataclass(frozen=True, slots=True)
class AttendedSpan:
    """A run of prompt tokens [start, stop) that hierarchical attention looked at exactly.

    `mass` is the share in [0, 1] of the question's attention that fell on it.
    """

    start: int
    stop: int
    mass: float


@dataclass(frozen=True, slots=True)
class ReadTimes:
    """How long the last tokens took to be read: in all, and by turn of the ring, summed over
    layers, waiting for what arrives included. Without a ring there are no turns."""

    seconds: float
    turns_s: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class ProgressEvent:
    """Prefill has read `done_tokens` of `total_tokens` prompt tokens. `times` only of a request
    whose trace is sampled, by an engine that measures them."""

    done_tokens: int
    total_tokens: int
    times: ReadTimes | None = None


@dataclass(frozen=True, slots=True)
class AttendedEvent:
    """Which spans hierarchical attention chose, by falling mass; sent once, before the tokens.

    `recall` in (0, 1] is the share of the question's attention mass that the chosen spans,
    anchor and question cover.
    """

    spans: tuple[AttendedSpan, ...]
    recall: float


@dataclass(frozen=True, slots=True)
class TokenEvent:
    """`index` tells the answers of one request apart; they come interleaved."""

    id: int
    logprob: float | None = None
    top_logprobs: tuple[TokenLogprob, ...] = ()
    index: int = 0


@dataclass(frozen=True, slots=True)
class TextLogprob:
    """A token by its text and bytes, from an engine that tells no ids."""

    text: str
    token_bytes: tuple[int, ...]
    logprob: float
    top: tuple["TextLogprob", ...] = ()


@dataclass(frozen=True, slots=True)
class TextEvent:
    """More of an answer from an engine that speaks text instead of ids.

    `tokens` are those of the text when logprobs were asked for; they may run ahead of it.
    """

    text: str
    index: int = 0
    tokens: tuple[TextLogprob, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallEvent:
    """A piece of tool call number `call` from an engine that reads chat.

    `id` and `name` come with its first piece; `arguments` are to be joined.
    """

    call: int
    arguments: str
    id: str | None = None
    name: str | None = None
    index: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerEndEvent:
    """One of several answers is complete; not sent when the request asks for one."""

    index: int
    reason: FinishReason
    completion_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishEvent:
    """Always the last event. Token counts are exact and over all answers; times are seconds.

    `reason` is that of the answer that ended last.
    """

    reason: FinishReason
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    queue_s: float
    prefill_s: float
    decode_s: float
    reasoning_tokens: int = 0
    """Those of the completion's that were thought and not said."""


Event = (
    ProgressEvent
    | AttendedEvent
    | TokenEvent
    | TextEvent
    | ToolCallEvent
    | AnswerEndEvent
    | FinishEvent
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLoad:
    running: int = 0
    queued: int = 0
    queued_prefill_tokens: int = 0
    """Prompt tokens not yet prefilled, over all running and queued requests."""
    kv_tokens: int = 0
    """KV promised to running requests, over all ranks; a closed one counts until ranks let go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineInfo:
    """What `GET /v1/engine` tells.

    `context_tokens` is the largest prompt + answer per attention mode; `window_tokens` is the
    length that the model was trained for.
    """

    model: str
    status: EngineStatus
    ranks: int
    epoch: int
    dtype: str
    window_tokens: int
    context_tokens: Mapping[Attention, int]
    kv_bytes_per_token: int
    kv_budget_tokens: int
    tokenizer_digest: str
    load: EngineLoad = field(default_factory=EngineLoad)
    reads: Reads = Reads.IDS
    image_tokens: int = 0
    """What an image in `chat` is counted as, an estimate; 0: it takes none."""
    passes: tuple[str, ...] = ()
    """Fields of OpenAI's chat API that mean something to it, beyond those it reads anyway."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizerFiles:
    """All a gateway needs to count and render for this model, without model files.

    `special_tokens` maps the chat template's names (bos_token, eos_token, …) to their text.
    """

    tokenizer_json: bytes
    chat_template: str
    special_tokens: Mapping[str, str]
    stop_ids: tuple[int, ...]
    digest: str
    """SHA-256 hex over tokenizer_json, chat_template and stop_ids."""


class Engine(Protocol):
    async def info(self) -> EngineInfo:
        """Describe the engine now. Raises EngineLost when it cannot be reached."""
        ...

    async def tokenizer(self) -> TokenizerFiles:
        """Serve the tokenizer. Raises EngineLost when the engine cannot be reached."""
        ...

    def generate(self, request: GenerateRequest) -> AsyncGenerator[Event, None]:
        """Yield progress, then (hierarchical) one AttendedEvent, then tokens, then one finish.

        Closing the generator early aborts the request: when `aclose()` returns, the abort is on
        its way to every rank, and its KV is freed within 250 ms. Raises PromptTooLong, EngineBusy
        or EngineRefused before the first event, RequestExpired or EngineLost at any point.
        """
        ...


class EngineError(Exception):
    """Base of all that an engine raises on purpose."""


class PromptTooLong(EngineError):
    def __init__(self, *, num_tokens: int, limit: int, attention: Attention) -> None:
        super().__init__(
            f"prompt and answer need {num_tokens} tokens; {attention} attention holds {limit}"
        )
        self.num_tokens = num_tokens
        self.limit = limit
        self.attention = attention


class EngineBusy(EngineError):
    def __init__(self, *, queued: int, retry_after_s: float) -> None:
        super().__init__(f"{queued} requests are waiting; retry in {retry_after_s:.0f} s")
        self.queued = queued
        self.retry_after_s = retry_after_s


class EngineLost(EngineError):
    """The engine cannot be reached, or gave up on this request."""


class RequestExpired(EngineError):
    """The request's deadline passed before it was finished."""


class EngineRefused(EngineError):
    """The engine understood the request and will not run it; the message says why."""


class GrammarRefused(EngineRefused):
    """The request's grammar cannot be compiled, or is too large; the message says why."""


class ModelMissing(EngineError):
    """The model that was asked for cannot be found, read or converted; raised at start only."""


class TooLittleMemory(EngineError):
    """The model, its ranks and a useful KV do not fit this machine; raised at start only."""

    def __init__(self, *, model: str, needed_bytes: int, available_bytes: int) -> None:
        super().__init__(
            f"{model} needs {needed_bytes / 1e9:.1f} GB of memory; "
            f"{available_bytes / 1e9:.1f} GB is available"
        )
        self.needed_bytes = needed_bytes
        self.available_bytes = available_bytes
