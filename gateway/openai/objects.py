"""OpenAI's chat completion objects as they go over the wire.

Knows how the parts of an answer are spelled; not how answers come about.
"""

from collections.abc import Sequence
from typing import Literal, NotRequired, TypedDict

from gateway.answers import Called, Facts, SpelledToken, Usage
from gateway.citations import Citation, said_at
from gateway.prompt.segment import SourceKind
from gateway.speech import HeardCall, HeardChoice


class TopLogprob(TypedDict):
    token: str
    bytes: list[int]
    logprob: float


class TokenLogprob(TopLogprob):
    top_logprobs: list[TopLogprob]


class Logprobs(TypedDict):
    content: list[TokenLogprob]
    refusal: None


class Annotation(TypedDict):
    """A citation of a file as OpenAI's `file_search` has it; `index` is a character of the
    answer, the one behind the citation's marker."""

    type: Literal["file_citation"]
    file_id: str
    filename: str
    index: int


class FunctionCallObject(TypedDict):
    name: str
    arguments: str


class ToolCallObject(TypedDict):
    id: str
    type: Literal["function"]
    function: FunctionCallObject


class FunctionCallDelta(TypedDict):
    name: NotRequired[str]
    arguments: str


class ToolCallDelta(TypedDict):
    """`id`, `type` and the name come with the first piece of a call."""

    index: int
    id: NotRequired[str]
    type: NotRequired[Literal["function"]]
    function: FunctionCallDelta


class AnswerMessage(TypedDict):
    role: Literal["assistant"]
    content: str | None
    refusal: None
    annotations: list[Annotation]
    tool_calls: NotRequired[list[ToolCallObject]]


class Choice(TypedDict):
    index: int
    message: AnswerMessage
    logprobs: Logprobs | None
    finish_reason: str


class PromptDetails(TypedDict):
    cached_tokens: int
    audio_tokens: int


class CompletionDetails(TypedDict):
    reasoning_tokens: int
    audio_tokens: int
    accepted_prediction_tokens: int
    rejected_prediction_tokens: int


class UsageObject(TypedDict):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails
    completion_tokens_details: CompletionDetails


class CitationObject(TypedDict):
    """Exactly one of the ids is set. `quote` is characters [start, stop) of what it names."""

    file_id: str | None
    document_id: str | None
    filename: str | None
    start: int
    stop: int
    quote: str
    score: float


class RingwayObject(TypedDict):
    route: str
    requested: str
    reason: str
    policy_version: str
    prompt_tokens: int
    count_kind: str
    tokens_read: int
    coverage: float | None
    recall: float | None
    evidence: float | None
    method: NotRequired[str]
    fallback_from: str | None
    escalated_from: str | None
    citations: list[CitationObject]
    timing_ms: dict[str, float]


class ChatCompletion(TypedDict):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[Choice]
    usage: UsageObject
    service_tier: str
    system_fingerprint: str
    ringway: RingwayObject


class Delta(TypedDict):
    role: NotRequired[Literal["assistant"]]
    content: NotRequired[str]
    refusal: NotRequired[None]
    annotations: NotRequired[list[Annotation]]
    tool_calls: NotRequired[list[ToolCallDelta]]


class ChunkChoice(TypedDict):
    index: int
    delta: Delta
    logprobs: Logprobs | None
    finish_reason: str | None


class ChatChunk(TypedDict):
    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: list[ChunkChoice]
    service_tier: str
    system_fingerprint: str
    usage: NotRequired[UsageObject | None]
    ringway: NotRequired[RingwayObject]


def choice_object(heard: HeardChoice, facts: Facts) -> Choice:
    calls = [_call_object(call) for call in heard.calls]
    message = AnswerMessage(
        role="assistant",
        content=None if calls and not heard.text else heard.text,
        refusal=None,
        annotations=annotations_of(heard.text, facts.citations),
    )
    if calls:
        message["tool_calls"] = calls
    return Choice(
        index=heard.index,
        message=message,
        logprobs=logprobs_object(heard.tokens),
        finish_reason=heard.reason,
    )


def _call_object(call: HeardCall) -> ToolCallObject:
    function = FunctionCallObject(name=call.name, arguments=call.arguments)
    return ToolCallObject(id=call.id, type="function", function=function)


def call_delta(piece: Called) -> ToolCallDelta:
    function = FunctionCallDelta(arguments=piece.arguments)
    if piece.id is None or piece.name is None:
        return ToolCallDelta(index=piece.call, function=function)
    function = FunctionCallDelta(name=piece.name, arguments=piece.arguments)
    return ToolCallDelta(index=piece.call, id=piece.id, type="function", function=function)


def usage_object(usage: Usage) -> UsageObject:
    return UsageObject(
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        total_tokens=usage.prompt_tokens + usage.completion_tokens,
        prompt_tokens_details=PromptDetails(cached_tokens=usage.cached_tokens, audio_tokens=0),
        completion_tokens_details=CompletionDetails(
            reasoning_tokens=usage.reasoning_tokens,
            audio_tokens=0,
            accepted_prediction_tokens=0,
            rejected_prediction_tokens=0,
        ),
    )


def ringway_object(facts: Facts, policy_version: str) -> RingwayObject:
    plan = facts.plan
    told = RingwayObject(
        route=plan.route.value,
        requested=plan.requested.value,
        reason=plan.reason,
        policy_version=policy_version,
        prompt_tokens=facts.prompt_tokens,
        count_kind=facts.count_kind.value,
        tokens_read=facts.tokens_read,
        coverage=None if facts.coverage is None else round(facts.coverage, 6),
        recall=None if facts.recall is None else round(facts.recall, 6),
        evidence=None if facts.evidence is None else round(facts.evidence, 6),
        fallback_from=plan.fallback_from.value if plan.fallback_from else None,
        escalated_from=plan.escalated_from.value if plan.escalated_from else None,
        citations=[_citation_object(one) for one in facts.citations],
        timing_ms=dict(facts.timing_ms),
    )
    if facts.method is not None:
        told["method"] = facts.method
    return told


def annotations_of(text: str, citations: Sequence[Citation]) -> list[Annotation]:
    """Of the citations, those of files."""
    return [
        Annotation(
            type="file_citation",
            file_id=one.source.id,
            filename=one.source.name,
            index=said_at(text, one),
        )
        for one in citations
        if one.source.kind is SourceKind.FILE
    ]


def _citation_object(citation: Citation) -> CitationObject:
    source = citation.source
    is_file = source.kind is SourceKind.FILE
    return CitationObject(
        file_id=source.id if is_file else None,
        document_id=None if is_file else source.id,
        filename=source.name if is_file else None,
        start=citation.start,
        stop=citation.stop,
        quote=citation.quote,
        score=round(citation.score, 6),
    )


def logprobs_object(tokens: Sequence[SpelledToken]) -> Logprobs | None:
    if not tokens:
        return None
    return Logprobs(content=[_token_logprob(token) for token in tokens], refusal=None)


def _token_logprob(token: SpelledToken) -> TokenLogprob:
    return TokenLogprob(
        token=token.text,
        bytes=list(token.token_bytes),
        logprob=token.logprob,
        top_logprobs=[
            TopLogprob(token=one.text, bytes=list(one.token_bytes), logprob=one.logprob)
            for one in token.top
        ],
    )
